package rocketstore.interop;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Locale;

/**
 * Adds up wall time, CPU time of the calling thread and of the process over the timed parts. The
 * JVM knows the last one in steps of 10 ms, which average out over many parts.
 */
final class Clock {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private static final OperatingSystemMXBean PROCESS =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private long wall;
    private long cpu;
    private long process;
    private long count;

    void begin() {
        process -= PROCESS.getProcessCpuTime();
        cpu -= THREADS.getCurrentThreadCpuTime();
        wall -= System.nanoTime();
    }

    void end(long done) {
        wall += System.nanoTime();
        cpu += THREADS.getCurrentThreadCpuTime();
        process += PROCESS.getProcessCpuTime();
        count += done;
    }

    static long processNs() {
        return PROCESS.getProcessCpuTime();
    }

    /** A sample whose clocks were read elsewhere. */
    static String answer(long wall, long cpu, long process, long count, String more) {
        return String.format(Locale.ROOT,
            "{\"wall\": %d, \"cpu\": %d, \"process\": %d, \"count\": %d%s}",
            wall, cpu, process, count, more);
    }

    String answer() {
        return answer(wall, cpu, process, count, "");
    }
}
