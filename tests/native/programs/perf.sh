#!/bin/sh
# perf stat where there are no counters: -o FILE, then -- COMMAND or -p PID; it counts until it is interrupted
while [ "$1" != -o ]; do shift; done
out=$2
shift 3
[ "$#:$1" = "1:true" ] || set sleep 60
end() {
	kill $! 2> /dev/null
	printf '1000,,%s,1,100.00,,\n' cycles instructions dtlb_load_misses.walk_pending > $out
	printf '1000,,%s,1,55.00,,\n' dtlb_store_misses.walk_pending >> $out
	exit 0
}
trap end INT
"$@" &
: > ready
wait
end
