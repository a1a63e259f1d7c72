# On the host: start the VMM, a vCPU on every node; read the nested table while the guest's program is idle.
cd /mnt
echo never > /sys/kernel/mm/transparent_hugepage/enabled
cp ptdump placed /tmp
sh vmm > vmm.output 2>&1 &
VMM=$!
vcpus() { grep -l '^CPU .*/KVM' /proc/$VMM/task/*/comm 2> /dev/null; }
until_there() {
	while [ ! -e "guest/$1" ]; do
		kill -0 $VMM 2> /dev/null || { echo "BUG: VMM: $(tail -qn 1 vmm.output guest/console)"; poweroff -f; }
		sleep 0.2
	done
	echo "guest $1: uptime $(cat /proc/uptime)"
}
while [ "$(vcpus | wc -l)" -lt 4 ] && kill -0 $VMM; do sleep 0.1; done
for comm in $(vcpus); do
	taskset -pc "$(sed 's/CPU \([0-9]*\).*/\1/' "$comm")" "$(echo "$comm" | cut -d / -f 5)" > /dev/null
done
until_there idle
/tmp/ptdump vm $VMM --stop -o /mnt/host.dump > ptdump_vm.output 2>&1
echo $? > ptdump_vm.status
cat ptdump_vm.output
touch guest/dumped
until_there ended
touch finished
