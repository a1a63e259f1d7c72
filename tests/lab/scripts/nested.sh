# Start the VMM of the file `vmm`, wait until its guest has dumped its toucher, then dump from the host's side.
cd /mnt
dmesg | grep -iE 'kvm|svm'
cat host.thp > /sys/kernel/mm/transparent_hugepage/enabled
cp ptdump placed /tmp
echo "guest starts: uptime $(cat /proc/uptime)"
sh vmm > vmm.output 2>&1 &
VMM=$!
vcpus() { for thread in /proc/$VMM/task/*; do grep -l '^CPU .*/KVM' $thread/comm; done 2> /dev/null; }
while [ "$(vcpus | wc -l)" -lt "$(cat vcpus)" ] && kill -0 $VMM; do sleep 0.1; done
for comm in $(vcpus); do
	thread=${comm#/proc/*/task/}
	taskset -pc "$(sed 's/CPU \([0-9]*\).*/\1/' $comm)" ${thread%/comm} > /dev/null
done
while [ ! -e guest/finished ]; do
	kill -0 $VMM 2> /dev/null || { echo "BUG: the VMM ended: $(tail -qn 1 vmm.output guest/console)"; poweroff -f; }
	sleep 0.2
done
echo "guest finished: uptime $(cat /proc/uptime)"
/tmp/ptdump vm $VMM -o /mnt/live.dump > ptdump_live.output 2>&1
/tmp/ptdump vm $VMM --stop -o /mnt/stopped.dump > ptdump_stopped.output 2>&1
grep -q 'State:.*stopped' /proc/$VMM/status || echo "running again" >> ptdump_stopped.output
kill -STOP $VMM
cat /proc/$VMM/numa_maps > numa_maps
/tmp/ptdump process $VMM -o /mnt/vmm.dump --verify > ptdump.output 2>&1
echo $? > ptdump.status
/tmp/ptdump vm $VMM -o /mnt/host.dump > ptdump_vm.output 2>&1
echo $? > ptdump_vm.status
/tmp/ptdump vcpus $VMM > vcpus.json
cat ptdump*.output
touch finished
