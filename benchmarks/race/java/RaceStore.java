package rocketstore.interop;

import java.io.File;
import java.util.Collections;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Opens and closes a store with the settings of the race. */
final class RaceStore {
    private static final long DEADLINE_NS = 600_000_000_000L;
    private final Map<String, String> settings = new TreeMap<>();
    private String root;
    /** Whether a store is opened with SYNC_FLUSH. */
    boolean durable;
    DefaultMessageStore store;

    /** Settings are given as name=value. */
    RaceStore(String[] given) {
        for (String one : given) {
            int at = one.indexOf('=');
            settings.put(one.substring(0, at), one.substring(at + 1));
        }
    }

    private DefaultMessageStore make() throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + "/commitlog");
        config.setHaListenPort(0);
        Properties properties = new Properties();
        properties.putAll(settings);
        if (durable) {
            properties.put("flushDiskType", "SYNC_FLUSH");
        }
        MixAll.properties2Object(properties, config);
        return Line.store(config, Collections.emptyMap());
    }

    /** Opens a store; the clock stops when it is started, and when all of its log is dispatched. */
    String open(String folder) throws Exception {
        root = folder;
        long process = -Clock.processNs();
        Clock clock = new Clock();
        long began = System.nanoTime();
        clock.begin();
        store = make();
        if (!store.load()) {
            throw new IllegalStateException("the store does not load");
        }
        Watcher watcher = new Watcher(store);
        watcher.start();
        store.start();
        clock.end(1);
        long opened = System.nanoTime() - began;
        watcher.started = true;
        watcher.join();
        return Clock.answer(watcher.at - began, 0, watcher.process + process, 1,
            ", \"opened\": " + opened);
    }

    /** Notes when a store has dispatched its log: the start of 4.9 looks for that once a second. */
    private static final class Watcher extends Thread {
        private final DefaultMessageStore watched;
        volatile boolean started;
        volatile long at;
        volatile long process;

        Watcher(DefaultMessageStore watched) {
            this.watched = watched;
            setDaemon(true);
        }

        @Override
        public void run() {
            boolean seen = false;
            long deadline = System.nanoTime() + DEADLINE_NS;
            while (System.nanoTime() < deadline) {
                boolean done = started;
                long left = watched.dispatchBehindBytes();
                seen |= left > 0;
                if (left <= 0 && (seen || done)) {
                    break;
                }
                try {
                    Thread.sleep(0, 200_000);
                } catch (InterruptedException error) {
                    throw new IllegalStateException(error);
                }
            }
            process = Clock.processNs();
            at = System.nanoTime();
        }
    }

    void awaitDispatched() throws InterruptedException {
        long deadline = System.nanoTime() + DEADLINE_NS;
        while (store.dispatchBehindBytes() > 0) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("dispatch does not finish");
            }
            Thread.sleep(0, 200_000);
        }
    }

    /** Deletes queues and index of a closed store, then opens it. */
    String rebuild(String folder) throws Exception {
        delete(new File(folder, "consumequeue"));
        delete(new File(folder, "index"));
        return open(folder);
    }

    private static void delete(File place) {
        File[] inside = place.listFiles();
        if (inside != null) {
            for (File one : inside) {
                delete(one);
            }
        }
        if (place.exists() && !place.delete()) {
            throw new IllegalStateException(place + " cannot be deleted");
        }
    }

    /** Bytes of the log, and the messages of the queues. */
    String end(String[] topics, int queues) throws Exception {
        long messages = 0;
        for (String topic : topics) {
            for (int queue = 0; queue < queues; queue++) {
                messages += store.getMaxOffsetInQueue(topic, queue);
            }
        }
        return Clock.answer(0, 0, 0, messages, ", \"end\": " + store.getMaxPhyOffset());
    }

    void close() {
        store.shutdown();
        store = null;
        System.gc(); // which unmaps the files
    }
}
