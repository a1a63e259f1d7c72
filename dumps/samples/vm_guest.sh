# In the guest: the store under the tracer, a thread on every vCPU; its page tables; then, when the host has read the
# nested table, its end and its trace.
cd /mnt
cp ptdump /tmp
mkdir /tmp/aged
mount -t tmpfs -o mpol=interleave tmpfs /tmp/aged
for cpu in 0 1 2 3; do
	taskset -c $cpu dd if=/dev/zero of=/tmp/aged/$cpu bs=64k count="$(cat aged)" 2> /dev/null
done
umount /tmp/aged
echo "aged: uptime $(cat /proc/uptime)"
mkfifo /tmp/stay
eval "$(cat traced)" < /tmp/stay > /tmp/found &
PROGRAM=$!
exec 3> /tmp/stay
while [ ! -s /tmp/found ]; do
	kill -0 $PROGRAM || { echo "BUG: the program ended"; poweroff -f; }
	sleep 0.5
done
echo "$(cat /tmp/found): uptime $(cat /proc/uptime), trace $(stat -c %s /tmp/trace.ptt) bytes"
/tmp/ptdump process $PROGRAM --stop -o /mnt/dump > ptdump.output 2>&1
echo $? > ptdump.status
cat ptdump.output
touch idle
while [ ! -e dumped ]; do sleep 0.2; done
exec 3>&-
wait $PROGRAM
cp /tmp/trace.ptt /mnt
touch ended
while :; do sleep 60; done
