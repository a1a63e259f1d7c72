# The command itself, in the file system of the host that boots this machine, which is read alone.
cd /mnt
mkdir /host
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 host /host || exit
mount -t tmpfs tmp /host/tmp
mount -t tmpfs run /host/run
mount -o rbind /sys /host/sys
mount -o rbind /proc /host/proc
mount -o rbind /dev /host/dev
mount -o bind /mnt /host/mnt
mount -t cgroup2 none /host/sys/fs/cgroup
echo "begins: uptime $(cat /proc/uptime)"
chroot /host /bin/sh /mnt/inside > trial.output 2> trial.errors
echo $? > trial.status
cat trial.output trial.errors
touch finished
