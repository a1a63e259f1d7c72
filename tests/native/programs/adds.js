// Counts what it adds to an array and to a map; at a byte on standard input: "kept", or "LOST".
const length = 1 << 22, words = new Float64Array(length), counts = new Map();
let state = 1, added = 0, end = false;
process.stdin.on("data", () => { end = true; });

function add() {
    for (let i = 0; i < 20000; i++) {
        state = (state * 1103515245 + 12345) % 2147483648;
        words[state % length]++;
        const key = "k" + state % 50000;
        counts.set(key, (counts.get(key) || 0) + 1);
        added++;
    }
    if (!end) return setImmediate(add);
    const all = [words, counts.values()].map((each) => [...each].reduce((sum, one) => sum + one, 0));
    console.log(all.every((sum) => sum === added) ? "kept" : "LOST", added);
    process.exit(0);
}
console.log("ready");
add();
