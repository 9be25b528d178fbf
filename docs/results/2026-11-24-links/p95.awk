# 95th percentile of the queue of each link between two times, and its mean utilisation:
#   awk -F, -v from=10 -v to=60 -f p95.awk links.csv
NR > 1 && $1 > from && $1 <= to { queue[$2, n[$2]++] = $3; used[$2] += $5 }
END {
    for (link in n) {
        count = n[link]
        for (i = 0; i < count; i++) sorted[i] = queue[link, i] + 0
        sort(0, count - 1)
        printf "%s p95 %d packets, utilisation %.3f\n", link, sorted[int(0.95 * (count - 1) + 0.5)], used[link] / count
    }
}
function sort(low, high,   i, j, middle, swap) {
    if (low >= high) return
    middle = sorted[int((low + high) / 2)]; i = low; j = high
    while (i <= j) {
        while (sorted[i] < middle) i++
        while (sorted[j] > middle) j--
        if (i <= j) { swap = sorted[i]; sorted[i] = sorted[j]; sorted[j] = swap; i++; j-- }
    }
    sort(low, j); sort(i, high)
}
