#!/bin/sh
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tracefs tracing /sys/kernel/tracing
mount -t debugfs debug /sys/kernel/debug
mkdir -p /dev/shm && mount -t tmpfs shm /dev/shm
read -r words < /proc/cmdline
while read -r name file; do
    options=
    for word in $words; do
        case $word in "$name".*) options="$options ${word#*.}" ;; esac
    done
    insmod "/modules.d/$file" $options || echo "insmod $file $options failed"
done < /modules
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=mmap share /mnt
sh /mnt/script
sync
poweroff -f
