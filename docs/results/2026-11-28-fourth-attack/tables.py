import pyarrow as pa, pyarrow.parquet as pq, pyarrow.ipc as ipc, numpy as np
b=pa.table({'k':pa.array(range(1000))})
pq.write_table(b,'small.parquet')
# long dictionary value, 100k rows
d=pa.DictionaryArray.from_arrays(pa.array(np.zeros(100_000,dtype=np.int32)),pa.array(['x'*(1<<20)]))
t=pa.table({'k':pa.array(np.arange(100_000)%1000),'v':d})
with ipc.new_file('dict.arrow',t.schema) as w: w.write_table(t)
r=pa.RunEndEncodedArray.from_arrays(pa.array([1<<30],type=pa.int32()),pa.array([7],type=pa.int64()))
rb=pa.record_batch([r],names=['k'])
with ipc.new_file('run.arrow',rb.schema) as w: w.write_batch(rb)
t=pa.table({'k':pa.array(np.arange(8192)%1000),'v':pa.array(['y'*(1<<20)]*8192,type=pa.large_string())})
pq.write_table(t,'dict.parquet',dictionary_pagesize_limit=8<<20,compression='zstd')
with open('wide.csv','w') as f:
    n=16000
    f.write(','.join(['k']+[f'c{i}' for i in range(n-1)])+'\n')
    for i in range(3000): f.write(str(i%1000)+','*(n-1)+'\n')
with open('wider.csv','w') as f:
    n=100000
    f.write(','.join(['k']+[f'c{i}' for i in range(n-1)])+'\n')
    f.write('1'+','*(n-1)+'\n')
