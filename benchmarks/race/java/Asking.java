package rocketstore.interop;

import java.nio.ByteBuffer;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.QueryMessageResult;

/** Asks an open store; what is asked for is chosen before the clock starts. */
final class Asking {
    static final String GROUP = "race-group";
    private static final int BODY_LENGTH_AT = 84;
    private static final int BODY_AT = 88;
    private final DefaultMessageStore store;
    private final MessageSet set;
    private final int put;
    /** So that what was read is used. */
    private long sum;

    Asking(RaceStore place, MessageSet set, int put) {
        this.store = place.store;
        this.set = set;
        this.put = put;
    }

    /** Reads queue after queue to its end, or {@code limit} messages; "body" copies each body. */
    String get(int most, boolean body, int queues, long limit) {
        Clock clock = new Clock();
        long count = 0;
        clock.begin();
        for (int t = 0; t < set.topics.length; t++) {
            for (int queue = 0; queue < queues && count < limit; queue++) {
                count += queue(set.topics[t], queue, most, body, limit - count);
            }
        }
        clock.end(count);
        return clock.answer();
    }

    private long queue(String topic, int queue, int most, boolean body, long limit) {
        long offset = 0;
        long count = 0;
        while (count < limit) {
            GetMessageResult result = store.getMessage(GROUP, topic, queue, offset, most, null);
            if (result.getStatus() != GetMessageStatus.FOUND) {
                return count;
            }
            count += result.getMessageCount();
            offset = result.getNextBeginOffset();
            if (body) {
                for (ByteBuffer record : result.getMessageBufferList()) {
                    sum += copied(record).length;
                }
            }
            result.release();
        }
        return count;
    }

    static byte[] copied(ByteBuffer record) {
        byte[] body = new byte[record.getInt(BODY_LENGTH_AT)];
        record.position(BODY_AT);
        record.get(body);
        return body;
    }

    String query(int count) {
        String[] topics = new String[count];
        String[] keys = new String[count];
        for (int i = 0; i < count; i++) {
            int number = set.sample(i, put);
            topics[i] = set.topicOf(number);
            keys[i] = MessageSet.key(number);
        }
        Clock clock = new Clock();
        long hits = 0;
        clock.begin();
        for (int i = 0; i < count; i++) {
            QueryMessageResult result =
                store.queryMessage(topics[i], keys[i], 1, 0, Long.MAX_VALUE);
            hits += result.getMessageBufferList().size();
            result.release();
        }
        clock.end(hits);
        return clock.answer();
    }

    private long physicalOffset(int number) throws Exception {
        String topic = set.topicOf(number);
        int queue = set.queueOf(number);
        long offset = number % store.getMaxOffsetInQueue(topic, queue);
        return store.getCommitLogOffsetInQueue(topic, queue, offset);
    }

    String byId(int count) throws Exception {
        String[] ids = new String[count];
        for (int i = 0; i < count; i++) {
            ids[i] = MessageDecoder.createMessageId(
                MessageSet.STORE_HOST, physicalOffset(set.sample(i, put)));
        }
        Clock clock = new Clock();
        long hits = 0;
        clock.begin();
        for (int i = 0; i < count; i++) {
            MessageExt message =
                store.lookMessageByOffset(MessageDecoder.decodeMessageId(ids[i]).getOffset());
            if (message != null) {
                hits++;
                sum += message.getBody().length;
            }
        }
        clock.end(hits);
        return clock.answer();
    }

    String byTime(int count) throws Exception {
        String[] topics = new String[count];
        int[] queues = new int[count];
        long[] times = new long[count];
        long[] ends = new long[count];
        for (int i = 0; i < count; i++) {
            int number = set.sample(i, put);
            topics[i] = set.topicOf(number);
            queues[i] = set.queueOf(number);
            ends[i] = store.getMaxOffsetInQueue(topics[i], queues[i]);
            times[i] = store.getMessageStoreTimeStamp(topics[i], queues[i], number % ends[i]);
        }
        Clock clock = new Clock();
        long hits = 0;
        clock.begin();
        for (int i = 0; i < count; i++) {
            long offset = store.getOffsetInQueueByTime(topics[i], queues[i], times[i]);
            hits += offset >= 0 && offset < ends[i] ? 1 : 0;
        }
        clock.end(hits);
        return clock.answer();
    }

    long sum() {
        return sum;
    }
}
