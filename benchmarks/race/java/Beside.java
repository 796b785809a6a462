package rocketstore.interop;

import java.nio.ByteBuffer;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;

/** A reader beside a writer: one thread puts, another pulls all queues until it has it all. */
final class Beside {
    private static final int QUEUES = 4;
    /** Without a message for so long, something is wrong. */
    private static final long DEADLINE_NS = 60_000_000_000L;
    private final RaceStore place;
    private final MessageSet set;
    private final long[] offsets;
    /** So that what was read is used. */
    private long sum;

    Beside(RaceStore place, MessageSet set) {
        this.place = place;
        this.set = set;
        offsets = new long[set.topics.length * QUEUES];
    }

    /** The CPU time is that of the process; "read" counts until the reader has every message. */
    String putAndRead(int most, int first, int count, int step) throws Exception {
        place.awaitDispatched();
        for (int i = 0; i < offsets.length; i++) {
            offsets[i] = place.store.getMaxOffsetInQueue(set.topics[i / QUEUES], i % QUEUES);
        }
        Putting putting = new Putting(place, set);
        long wall = 0;
        long read = 0;
        long process = 0;
        for (int done = 0; done < count; done += step) {
            MessageExt[] messages = putting.made(first + done, Math.min(step, count - done));
            CountDownLatch go = new CountDownLatch(1);
            AtomicReference<Throwable> error = new AtomicReference<>();
            Thread reader = new Thread(() -> {
                try {
                    go.await();
                    read(messages.length, most);
                } catch (Throwable found) {
                    error.set(found);
                }
            });
            reader.start();
            Thread.sleep(5); // it waits now
            process -= Clock.processNs();
            long began = System.nanoTime();
            go.countDown();
            Putting.put(place.store, messages);
            wall += System.nanoTime() - began;
            reader.join();
            read += System.nanoTime() - began;
            process += Clock.processNs();
            if (error.get() != null) {
                throw new IllegalStateException(error.get());
            }
        }
        if (sum < 0) {
            throw new IllegalStateException("bodies of negative length");
        }
        return Clock.answer(wall, process, process, count, ", \"read\": " + read);
    }

    private void read(int count, int most) throws InterruptedException {
        long deadline = System.nanoTime() + DEADLINE_NS;
        int done = 0;
        while (done < count) {
            int found = pass(place.store, most);
            done += found;
            if (found > 0) {
                deadline = System.nanoTime() + DEADLINE_NS;
            } else if (System.nanoTime() > deadline) {
                throw new IllegalStateException("the reader got " + done + " of " + count);
            } else {
                Thread.sleep(1);
            }
        }
        if (done > count) {
            throw new IllegalStateException("the reader got " + done + " instead of " + count);
        }
    }

    /** Pulls each queue once, and copies each body. */
    private int pass(DefaultMessageStore store, int most) {
        int done = 0;
        for (int i = 0; i < offsets.length; i++) {
            GetMessageResult result = store.getMessage(
                Asking.GROUP, set.topics[i / QUEUES], i % QUEUES, offsets[i], most, null);
            if (result.getStatus() == GetMessageStatus.FOUND) {
                offsets[i] = result.getNextBeginOffset();
                done += result.getMessageCount();
                for (ByteBuffer record : result.getMessageBufferList()) {
                    sum += Asking.copied(record).length;
                }
            }
            result.release();
        }
        return done;
    }
}
