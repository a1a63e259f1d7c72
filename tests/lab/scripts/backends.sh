# Start the VMM of each directory of /mnt/vmms, stop it once its guest has written all its pages, dump both sides. None is
# continued: the machine's memory holds all of them at its end.
cd /mnt
dmesg | grep -iE 'svm'
cp ptdump placed /tmp
echo never > /sys/kernel/mm/transparent_hugepage/enabled
echo 128 > /proc/sys/vm/nr_hugepages
for name in $(ls vmms); do
	echo "$name: uptime $(cat /proc/uptime)"
	sh vmms/$name/vmm > vmms/$name/output 2>&1 &
	VMM=$!
	while [ ! -s /tmp/$name.said ]; do
		kill -0 $VMM 2> /dev/null || { echo "BUG: the VMM of $name ended: $(tail -n 1 vmms/$name/output)"; poweroff -f; }
		sleep 0.2
	done
	/tmp/ptdump vcpus $VMM > vmms/$name/vcpus 2>&1
	kill -STOP $VMM
	for what in vm process; do
		/tmp/ptdump $what $VMM -o /mnt/vmms/$name/$what > vmms/$name/$what.output 2>&1
		echo $? > vmms/$name/$what.status
		cat vmms/$name/$what.output
	done
done
grep -H Huge /proc/meminfo
touch finished
