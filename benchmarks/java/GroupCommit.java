package rocketstore.interop;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Puts into a store with SYNC_FLUSH for as long as a line of standard input says: "threads 64 2.0" by
 * so many threads, "futures 64 2.0" by one thread with so many puts under way. Answers with the number
 * of puts that were acknowledged as PUT_OK, and the seconds they took.
 */
public final class GroupCommit {
    private final DefaultMessageStore store;
    private final byte[] body;
    private final InetSocketAddress host = new InetSocketAddress("127.0.0.1", 10911);

    private GroupCommit(DefaultMessageStore store, int bodySize) {
        this.store = store;
        this.body = new byte[bodySize];
        Arrays.fill(body, (byte) 'x');
    }

    public static void main(String[] arguments) {
        int status = 1;
        try {
            serve(arguments);
            status = 0;
        } catch (Throwable error) {
            error.printStackTrace();
        }
        Runtime.getRuntime().halt(status); // RocketMQ's threads would keep the process
    }

    private static void serve(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true);
        System.setOut(System.err);
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(arguments[0]);
        config.setStorePathCommitLog(arguments[0] + "/commitlog");
        config.setMappedFileSizeCommitLog(Integer.parseInt(arguments[2]));
        config.setFlushDiskType(FlushDiskType.SYNC_FLUSH);
        config.setTimerWheelEnable(false);
        config.setDiskMaxUsedSpaceRatio(99);
        config.setHaListenPort(0);
        DefaultMessageStore store = Line.store(config, Collections.emptyMap());
        if (!store.load()) {
            throw new IllegalStateException("the store does not load");
        }
        store.start();
        GroupCommit bench = new GroupCommit(store, Integer.parseInt(arguments[1]));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        answers.println("ready");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            int width = Integer.parseInt(words[1]);
            double seconds = Double.parseDouble(words[2]);
            long began = System.nanoTime();
            long count = words[0].equals("threads")
                ? bench.threads(width, seconds) : bench.futures(width, seconds);
            answers.println(count + " " + (System.nanoTime() - began) / 1e9);
        }
        store.shutdown();
    }

    private MessageExtBrokerInner message(long number) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic("T");
        message.setQueueId((int) (number % 8));
        message.setBody(body);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(host);
        message.setStoreHost(host);
        MessageAccessor.setProperties(message, new HashMap<>());
        message.setPropertiesString("");
        return message;
    }

    private static void require(PutMessageResult result) {
        if (result.getPutMessageStatus() != PutMessageStatus.PUT_OK) {
            throw new IllegalStateException(result.getPutMessageStatus().name());
        }
    }

    private long threads(int width, double seconds) throws Exception {
        AtomicLong count = new AtomicLong();
        long end = System.nanoTime() + (long) (seconds * 1e9);
        Thread[] putters = new Thread[width];
        for (int i = 0; i < width; i++) {
            long queue = i;
            putters[i] = new Thread(() -> {
                while (System.nanoTime() < end) {
                    require(store.putMessage(message(queue)));
                    count.incrementAndGet();
                }
            });
            putters[i].start();
        }
        for (Thread putter : putters) {
            putter.join();
        }
        return count.get();
    }

    private long futures(int width, double seconds) throws Exception {
        AtomicLong count = new AtomicLong();
        Semaphore free = new Semaphore(width);
        long end = System.nanoTime() + (long) (seconds * 1e9);
        for (long number = 0; System.nanoTime() < end; number++) {
            free.acquire();
            CompletableFuture<PutMessageResult> put = store.asyncPutMessage(message(number));
            put.thenAccept(result -> {
                require(result);
                count.incrementAndGet();
                free.release();
            });
        }
        free.acquire(width);
        return count.get();
    }
}
