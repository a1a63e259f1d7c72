# In the guest: memcached under the tracer, a thread on every vCPU; its page tables; then, when the host has read
# the nested table, its end and its trace.
cd /mnt
cp ptdump gets.* /tmp
mkdir -p /etc
echo "root:x:0:0::/:/bin/sh" > /etc/passwd
ip link set lo up
for cpu in 0 1 2 3; do
	taskset -c $cpu dd if=/dev/zero of=/tmp/aged.$cpu bs=64k count="$(cat aged)" 2> /dev/null &
done
wait
rm /tmp/aged.*
echo "aged: uptime $(cat /proc/uptime)"
eval "$(cat traced)" &
PROGRAM=$!
while ! nc 127.0.0.1 11211 < quit 2> /dev/null; do
	kill -0 $PROGRAM || { echo "BUG: the program ended"; poweroff -f; }
	sleep 0.5
done
cpu=0
for thread in $(grep -l mc-worker /proc/$PROGRAM/task/*/comm | cut -d / -f 5 | sort -n); do
	taskset -pc $cpu "$thread" > /dev/null && cpu=$((cpu + 1))
done
[ $cpu = 4 ] || { echo "BUG: $cpu workers of 4"; poweroff -f; }
echo "serving: uptime $(cat /proc/uptime)"
fill() {
	awk -v first=$1 -v keys="$(cat keys)" -v bytes="$(cat bytes)" 'BEGIN {
		for (value = "x"; length(value) < bytes; value = value value) { }
		value = substr(value, 1, bytes)
		for (key = first; key < keys; key += 4)
			printf "set %04x 0 0 %d noreply\r\n%s\r\n", key, bytes, value
		printf "quit\r\n"
	}'
}
to_memcached() { taskset -c $1 nc 127.0.0.1 11211 > /dev/null; }
on_each_cpu() {
	CLIENTS=
	for cpu in 0 1 2 3; do
		$1 $cpu &
		CLIENTS="$CLIENTS $!"
	done
	wait $CLIENTS
}
get_keys() { to_memcached $1 < /tmp/gets.$1; }
for cpu in 0 1 2 3; do fill $cpu | to_memcached $cpu; done
echo "filled: uptime $(cat /proc/uptime)"
for round in 1 2 3 4 5 6 7 8 9 10 11 12; do
	on_each_cpu get_keys
	[ "$(stat -c %s /tmp/trace.ptt)" -lt "$(cat enough)" ] || break
done
echo "asked: uptime $(cat /proc/uptime), trace $(stat -c %s /tmp/trace.ptt) bytes"
/tmp/ptdump process $PROGRAM --stop -o /mnt/dump > ptdump.output 2>&1
echo $? > ptdump.status
cat ptdump.output
touch idle
while [ ! -e dumped ]; do sleep 0.2; done
kill $PROGRAM
wait $PROGRAM
sleep 1
cp /tmp/trace.ptt /mnt
touch ended
while :; do sleep 60; done
