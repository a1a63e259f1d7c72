# A process born on node 1 is moved to node 0 by its cpuset, which leaves its tables behind; then they are relocated, there and back.
cd /mnt
cp ptdump ptrelocate relocate_target /tmp
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
touch finished
