// Four threads count what they add to their arrays; at a byte on standard input: "kept", or "LOST".
public class Adds {
    static volatile boolean end;

    static void add(long[] words, long[] added, int own) {
        long state = own + 1;
        while (!end) {
            for (int i = 0; i < 2000; i++) {
                state = state * 6364136223846793005L + 1442695040888963407L;
                words[(int) ((state >>> 20) & (words.length - 1))]++;
                added[own]++;
            }
            byte[] garbage = new byte[10000];
            Thread.onSpinWait();
        }
    }

    public static void main(String[] arguments) throws Exception {
        long[][] words = new long[4][1 << 21];
        long[] added = new long[4];
        Thread[] threads = new Thread[4];
        for (int i = 0; i < 4; i++) {
            final int own = i;
            threads[i] = new Thread(() -> add(words[own], added, own));
            threads[i].start();
        }
        System.out.println("ready");
        System.in.read();
        end = true;
        long all = 0, found = 0;
        for (int i = 0; i < 4; i++) {
            threads[i].join();
            all += added[i];
            for (long word : words[i]) found += word;
        }
        System.out.println((all == found ? "kept " : "LOST ") + all);
    }
}
