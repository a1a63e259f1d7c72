# Dump the toucher of this machine. Arguments of the toucher and of ptdump are in the files beside this one.
cd /mnt
cat /proc/version
if [ ! -e stay ]; then # slow in a guest of a guest, whose kernel is not randomized
	grep -m 1 ' _stext$' /proc/kallsyms > symbols
	dd if=/proc/kcore of=kcore bs=4096 count=1 2> /dev/null
	cp ptsurvey /tmp
fi
cp ptdump toucher /tmp
/tmp/toucher /mnt/touched $(cat toucher.arguments) 2> toucher.errors &
TOUCHER=$!
while [ ! -e touched ] && kill -0 $TOUCHER; do sleep 0.1; done
grep -hE 'AnonHuge|HugePages_Total|PageTables' /proc/meminfo
cat /proc/$TOUCHER/numa_maps > numa_maps
echo "touched: uptime $(cat /proc/uptime)"
/tmp/ptdump process $TOUCHER -o /mnt/dump $(cat ptdump.arguments) > ptdump.output 2>&1
echo $? > ptdump.status
cat ptdump.output
[ -e stay ] || /tmp/ptsurvey $TOUCHER > survey.json
touch finished
while [ -e stay ]; do sleep 60; done
