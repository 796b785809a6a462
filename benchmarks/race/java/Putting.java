package rocketstore.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;

/** Puts messages of the set; they are made before the clock starts. */
final class Putting {
    private final RaceStore place;
    private final MessageSet set;

    Putting(RaceStore place, MessageSet set) {
        this.place = place;
        this.set = set;
    }

    static void require(PutMessageResult result) {
        if (result.getPutMessageStatus() != PutMessageStatus.PUT_OK) {
            throw new IllegalStateException("a put answered " + result.getPutMessageStatus());
        }
    }

    MessageExt[] made(int first, int count) {
        MessageExt[] found = new MessageExt[count];
        for (int i = 0; i < count; i++) {
            found[i] = set.inner(first + i);
        }
        return found;
    }

    static void put(DefaultMessageStore store, MessageExt[] messages) {
        for (MessageExt message : messages) {
            require(Line.put(store, message));
        }
    }

    /** One by one, {@code step} messages made at a time; "wait": each time until dispatched. */
    String single(int first, int count, int step, boolean wait) throws Exception {
        Clock clock = new Clock();
        for (int done = 0; done < count; done += step) {
            MessageExt[] messages = made(first + done, Math.min(step, count - done));
            clock.begin();
            put(place.store, messages);
            if (wait) {
                place.awaitDispatched();
            }
            clock.end(messages.length);
        }
        return clock.answer();
    }

    /** Batches as a client encodes them, each for one queue. */
    String batches(int first, int count, int step) throws Exception {
        Clock clock = new Clock();
        for (int done = 0; done < count; done += step) {
            int size = Math.min(step, count - done);
            int number = first + done;
            List<Message> messages = new ArrayList<>();
            for (int i = 0; i < size; i++) {
                messages.add(set.plain(set.topicOf(number), number + i));
            }
            MessageExtBatch batch = new MessageExtBatch();
            set.common(batch, number);
            batch.setBody(MessageDecoder.encodeMessages(messages));
            MessageAccessor.setProperties(batch, MessageSet.none());
            Line.batchProperties(batch, "");
            clock.begin();
            require(place.store.putMessages(batch));
            clock.end(size);
        }
        return clock.answer();
    }

    /** One thread with so many puts under way; the CPU time is that of the process. */
    String futures(int width, int first, int count, int step) throws Exception {
        long wall = 0;
        long process = 0;
        Semaphore free = new Semaphore(width);
        AtomicReference<Throwable> error = new AtomicReference<>();
        for (int done = 0; done < count; done += step) {
            MessageExt[] messages = made(first + done, Math.min(step, count - done));
            process -= Clock.processNs();
            wall -= System.nanoTime();
            for (MessageExt message : messages) {
                free.acquire();
                AsyncPut.put(place.store, message).whenComplete((result, failure) -> {
                    if (failure != null) {
                        error.compareAndSet(null, failure);
                    } else if (result.getPutMessageStatus() != PutMessageStatus.PUT_OK) {
                        error.compareAndSet(null, new IllegalStateException(
                            "a put answered " + result.getPutMessageStatus()));
                    }
                    free.release();
                });
            }
            free.acquire(width);
            wall += System.nanoTime();
            process += Clock.processNs();
            free.release(width);
            if (error.get() != null) {
                throw new IllegalStateException(error.get());
            }
        }
        return Clock.answer(wall, process, process, count, "");
    }

    /** Several threads, which start together; the CPU time is that of the process. */
    String threads(int width, int first, int count, int step) throws Exception {
        long wall = 0;
        long process = 0;
        for (int done = 0; done < count; done += step) {
            int size = Math.min(step, count - done);
            Thread[] threads = new Thread[width];
            Throwable[] errors = new Throwable[width];
            CountDownLatch go = new CountDownLatch(1);
            for (int i = 0; i < width; i++) {
                int begin = size * i / width;
                MessageExt[] messages =
                    made(first + done + begin, size * (i + 1) / width - begin);
                int number = i;
                threads[i] = new Thread(() -> {
                    try {
                        go.await();
                        put(place.store, messages);
                    } catch (Throwable error) {
                        errors[number] = error;
                    }
                });
                threads[i].start();
            }
            Thread.sleep(5); // all of them wait now
            process -= Clock.processNs();
            wall -= System.nanoTime();
            go.countDown();
            for (Thread thread : threads) {
                thread.join();
            }
            wall += System.nanoTime();
            process += Clock.processNs();
            for (Throwable error : errors) {
                if (error != null) {
                    throw new IllegalStateException(error);
                }
            }
        }
        return Clock.answer(wall, process, process, count, "");
    }
}
