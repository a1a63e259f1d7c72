"""Published latencies of cache-line transfers, and the groups they give."""

# vMitosis, Table 4, as printed: the upper triangle of the first 8 of 12 CPUs of a matrix of 192
TABLE_4 = """\
\t0\t1\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11
0\t-\t125\t125\t126\t50\t125\t126\t126\t55\t125\t125\t126
1\t-\t-\t125\t126\t126\t50\t125\t125\t125\t52\t126\t125
2\t-\t-\t-\t126\t125\t126\t62\t126\t125\t125\t55\t125
3\t-\t-\t-\t-\t125\t125\t126\t50\t125\t126\t125\t55
4\t-\t-\t-\t-\t-\t125\t125\t126\t62\t126\t125\t125
5\t-\t-\t-\t-\t-\t-\t125\t126\t125\t55\t125\t126
6\t-\t-\t-\t-\t-\t-\t-\t126\t126\t126\t50\t125
7\t-\t-\t-\t-\t-\t-\t-\t-\t125\t126\t125\t52
"""
SOCKETS = [(0, 4, 8), (1, 5, 9), (2, 6, 10), (3, 7, 11)]
