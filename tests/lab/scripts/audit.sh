# Run each script of the oracle and dump its process at each check. A line of `offsets` is NAME ORDER FILTER OFFSET.
cd /mnt
cp ptdump oracle /tmp
cp operations /script
echo madvise > /sys/kernel/mm/transparent_hugepage/enabled
mkfifo /tmp/go /tmp/said
mkdir /tmp/dumps
while read NAME ORDER FILTER OFFSET; do
    echo "$ORDER" > /proc/hydra/repl_order
    echo "$FILTER" > /proc/hydra/tlbflush_opt
    /tmp/oracle "$OFFSET" < /tmp/go > /tmp/said &
    exec 3> /tmp/go
    while read -r WORD SCENARIO CHECK REST; do
        echo "$WORD $SCENARIO $CHECK $REST" >> said
        case $WORD in
        @CHECK) /tmp/ptdump process $! --stop -o "/tmp/dumps/$NAME.$CHECK" >> said 2>&1 ;;
        esac
        case $WORD in
        @BEGIN | @CHECK) printf g >&3 ;;
        esac
    done < /tmp/said
    wait $!
    echo "@EXIT $NAME $?" >> said
    exec 3>&-
done < offsets
tar -C /tmp/dumps -cf dumps.tar .
touch finished
