# Dump the toucher of this machine in control groups of version 2 with little memory, then with each ptrace_scope.
cd /mnt
cp ptdump toucher vmm /tmp
/tmp/vmm /mnt/made &
VMM=$!
/tmp/toucher /mnt/touched $(cat toucher.arguments) 2> toucher.errors &
TOUCHER=$!
while [ ! -e touched ] && kill -0 $TOUCHER; do sleep 0.1; done
while [ ! -e made ] && kill -0 $VMM; do sleep 0.1; done
GROUPS_AT=/sys/fs/cgroup
mount -t cgroup2 none $GROUPS_AT
echo +memory > $GROUPS_AT/cgroup.subtree_control
for mib in $(cat group.mib); do
    mkdir -p $GROUPS_AT/above$mib/small
    echo +memory > $GROUPS_AT/above$mib/cgroup.subtree_control
    echo ${mib}M > $GROUPS_AT/above$mib/memory.max
    sh -c "echo 0 > $GROUPS_AT/above$mib/small/cgroup.procs; exec /tmp/ptdump process $TOUCHER -o /mnt/in$mib" > in$mib.output 2>&1
    echo $? > in$mib.status
    cat $GROUPS_AT/above$mib/memory.events $GROUPS_AT/above$mib/memory.peak > in$mib.events
    cat in$mib.output in$mib.events
done
for scope in 0 1 2 3; do
    echo $scope > /proc/sys/kernel/yama/ptrace_scope
    cat /proc/sys/kernel/yama/ptrace_scope
    /tmp/ptdump process $TOUCHER -o /mnt/scope$scope --verify --stop > scope$scope.output 2>&1
    echo $? > scope$scope.status
    cat scope$scope.output
    /tmp/ptdump vm $VMM -o /mnt/vm$scope > scope$scope.vm 2>&1
    cat scope$scope.vm
    dd if=/proc/$TOUCHER/mem count=0 2> scope$scope.memory
    cat scope$scope.memory
done
touch finished
