# A process born on node 1 is moved to node 0 by its cpuset, which leaves its tables behind; then they are relocated, there and back.
# A VM born on node 0 has a vCPU moved to node 1, which leaves its nested tables behind; then KVM is made to drop them.
cd /mnt
cp ptdump ptrelocate relocate_target vmm placed /tmp
GROUPS_AT=/sys/fs/cgroup
mount -t cgroup2 none $GROUPS_AT
echo +cpuset > $GROUPS_AT/cgroup.subtree_control
mkdir $GROUPS_AT/one
echo 1 > $GROUPS_AT/one/cpuset.cpus
echo 1 > $GROUPS_AT/one/cpuset.mems
mkfifo /tmp/asks
sh -c "echo 0 > $GROUPS_AT/one/cgroup.procs; exec /tmp/relocate_target write 64 2" < /tmp/asks > said &
TARGET=$!
exec 3> /tmp/asks
dumped() {
	/tmp/ptdump process $TARGET -o /mnt/$1 > $1.output 2>&1
	cat $1.output
}
while [ ! -s said ] && kill -0 $TARGET; do sleep 0.1; done
dumped born
echo 0 > $GROUPS_AT/one/cpuset.cpus
echo 0 > $GROUPS_AT/one/cpuset.mems
dumped moved
/tmp/ptrelocate --yes --max-pause 100000 $TARGET > near.json 2> near.errors
cat near.errors
dumped near
echo 0-1 > $GROUPS_AT/one/cpuset.mems
/tmp/ptrelocate --yes --to 1 --max-pause 100000 $TARGET > far.json 2> far.errors
dumped far
printf '?' >&3
while [ "$(wc -l < said)" -lt 2 ] && kill -0 $TARGET; do sleep 0.1; done
exec 3>&-

born() { # NAME WORDS...: a VM of 256 MiB with two vCPUs on CPU 0
	name=$1
	shift
	: > $name.rounds
	"$@" taskset 1 /tmp/vmm /mnt/$name.rounds 256 2 2> $name.errors &
	VMM=$!
	further
}
further() { # three rounds begun: two are whole
	at=$(wc -l < $name.rounds)
	while [ "$(wc -l < $name.rounds)" -lt $((at + 3)) ] && kill -0 $VMM; do sleep 0.1; done
}
nested() {
	/tmp/ptdump vm $VMM -o /mnt/vm.$1 > vm.$1.output 2>&1
	cat vm.$1.output
}
vcpu() { # NUMBER: its thread
	for comm in /proc/$VMM/task/*/comm; do
		[ "$(cat $comm)" != "CPU $1/KVM" ] || echo $comm | cut -d / -f 5
	done
}
echo "VM: uptime $(cat /proc/uptime)"
born first env
nested born
taskset -p 2 $(vcpu 1)
further
nested moved
echo Y > /sys/module/kvm/parameters/nx_huge_pages
further
nested once
echo N > /sys/module/kvm/parameters/nx_huge_pages
sh reset
further
nested reset
mkdir $GROUPS_AT/vm $GROUPS_AT/vm/vcpus
echo $VMM > $GROUPS_AT/vm/cgroup.procs
echo threaded > $GROUPS_AT/vm/vcpus/cgroup.type
echo +cpuset > $GROUPS_AT/vm/cgroup.subtree_control
echo 1 > $GROUPS_AT/vm/vcpus/cpuset.mems
for number in 0 1; do vcpu $number > $GROUPS_AT/vm/vcpus/cgroup.threads; done
further
sh reset
further
nested bound
kill -STOP $VMM
/tmp/ptdump process $VMM -o /mnt/vm.process > vm.process.output 2>&1
born second /tmp/placed interleave:3
nested interleaved
echo "VMs ended: uptime $(cat /proc/uptime)"
touch finished
