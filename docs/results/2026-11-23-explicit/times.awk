# awk -F, -f times.awk OUT/links.csv OUT/series.csv: seconds until nine tenths of the link are used over a second, and from 20 s, when the last
# of three flows joins, until their rates over a second stay within a tenth of their mean to the end.
FNR == 1 { file++; next }
file == 1 { used[++n] = $5 }
file == 2 { if (!($2 in flows)) flows[$2]; at[$2]++; rate[$2, at[$2]] = $4 }
END {
    full = alike = "never"
    for (i = 1; i + 9 <= n; i++) {
        sum = 0
        for (k = i; k < i + 10; k++) sum += used[k]
        if (sum / 10 >= 0.9) { full = (i - 1) / 10; break }
    }
    for (i = n - 9; i >= 1; i--) {
        all = 0
        for (f in flows) {
            mean[f] = 0
            for (k = i; k < i + 10; k++) mean[f] += rate[f, k] / 10
            all += mean[f] / 3
        }
        good = all > 0
        for (f in flows) if (mean[f] < 0.9 * all || mean[f] > 1.1 * all) good = 0
        if (!good) break
        alike = (i - 1) / 10 - 20
        if (alike < 0) alike = 0
    }
    print full, alike
}
