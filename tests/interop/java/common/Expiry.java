package rocketstore.interop;

import com.alibaba.fastjson.JSONObject;
import java.io.File;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Deletes a store's oldest log files with RocketMQ's own code, and what only they needed. The
 * cleaners that would do it by the clock, the first time after a minute, are kept from it.
 */
final class Expiry {
    private static final long WAIT_MS = 120_000;
    private static final long HOUR_MS = 3_600_000;
    private static final String[] OWNERS = {"getQueueStore", "getConsumeQueueStore"};

    private Expiry() {
    }

    /** Nothing is deleted by itself: the cleaner of the queues has seen all there is to see. */
    static void byHandOnly(DefaultMessageStore store) throws Exception {
        lastSeen(cleaner(store), Long.MAX_VALUE);
    }

    /** Deletes all log files but the newest; "queues": then the files of queues and index, too. */
    static JSONObject expire(DefaultMessageStore store, JSONObject ask) throws Exception {
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (store.dispatchBehindBytes() > 0) {
            await(deadline, "dispatch is behind");
        }
        MessageStoreConfig config = store.getMessageStoreConfig();
        long size = config.getMappedFileSizeCommitLog();
        long newest = Math.max(0, store.getMaxPhyOffset() - 1) / size * size;
        long first = newest - (ask.getLongValue("keep") - 1) * size;
        while (age(new File(config.getStorePathCommitLog()), first)) {
            store.getCommitLog().deleteExpiredFile(HOUR_MS, 0, 0, false);
            await(deadline, "old files are not deleted");
        }
        if (ask.getBooleanValue("queues")) {
            // A file that is being synced is not deleted, which only is a matter of time.
            while (indexIsSynced()) {
                await(deadline, "an index file is being synced");
            }
            Object cleaner = cleaner(store);
            lastSeen(cleaner, 0);
            Method run = method(cleaner.getClass(), "run");
            run.setAccessible(true);
            run.invoke(cleaner);
            lastSeen(cleaner, Long.MAX_VALUE);
        }
        JSONObject answer = new JSONObject(true);
        answer.put("status", "expired");
        answer.put("minPhy", store.getMinPhyOffset());
        return answer;
    }

    /** Whether a full index file is being synced by the thread that RocketMQ starts for it. */
    private static boolean indexIsSynced() {
        for (Thread thread : Thread.getAllStackTraces().keySet()) {
            if (thread.getName().startsWith("FlushIndexFileThread")) {
                return true;
            }
        }
        return false;
    }

    private static void await(long deadline, String what) throws Exception {
        if (System.currentTimeMillis() > deadline) {
            throw new IllegalStateException(what + " for two minutes");
        }
        Thread.sleep(1);
    }

    /** Makes the files in front of an offset look old; whether there is one. */
    private static boolean age(File folder, long first) {
        boolean found = false;
        for (File file : folder.listFiles()) {
            if (Long.parseLong(file.getName()) < first) {
                found = true;
                file.setLastModified(System.currentTimeMillis() - 10 * HOUR_MS);
            }
        }
        return found;
    }

    /** Up to 5.3 the store itself has the cleaner, later what holds its queues. */
    private static Object cleaner(DefaultMessageStore store) throws Exception {
        Field field = field(store.getClass(), "cleanConsumeQueueService");
        Object owner = store;
        for (int i = 0; field == null && i < OWNERS.length; i++) {
            owner = method(store.getClass(), OWNERS[i]).invoke(store);
            field = field(owner.getClass(), "cleanConsumeQueueService");
        }
        field.setAccessible(true);
        return field.get(owner);
    }

    private static void lastSeen(Object cleaner, long offset) throws Exception {
        Field field = field(cleaner.getClass(), "lastPhysicalMinOffset");
        field.setAccessible(true);
        field.setLong(cleaner, offset);
    }

    private static Field field(Class<?> kind, String name) {
        for (Class<?> at = kind; at != null; at = at.getSuperclass()) {
            for (Field field : at.getDeclaredFields()) {
                if (field.getName().equals(name)) {
                    return field;
                }
            }
        }
        return null;
    }

    private static Method method(Class<?> kind, String name) throws NoSuchMethodException {
        return kind.getMethod(name);
    }
}
