package rocketstore.interop;

import java.util.Map;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.filter.FilterAPI;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.DefaultMessageFilter;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What the 4.9 line names differently from the 5.x line. */
final class Line {
    private Line() {
    }

    static DefaultMessageStore store(MessageStoreConfig config, Map<String, Map<String, String>> topics)
            throws Exception {
        MessageArrivingListener listener = (t, q, offset, tags, time, bits, properties) -> { };
        return new DefaultMessageStore(
            config, new BrokerStatsManager("c", false), listener, new BrokerConfig());
    }

    static MessageExt message() {
        return new MessageExtBrokerInner();
    }

    static MessageExt innerBatch() {
        throw new UnsupportedOperationException("the 4.9 line has no inner batches");
    }

    static void properties(MessageExt message, String text) {
        ((MessageExtBrokerInner) message).setPropertiesString(text);
    }

    static PutMessageResult put(DefaultMessageStore store, MessageExt message) {
        return store.putMessage((MessageExtBrokerInner) message);
    }

    /** The batch's own properties are read from its property map in this line. */
    static void batchProperties(MessageExtBatch batch, String text) {
    }

    static MessageFilter tags(String topic, String expression) throws Exception {
        return new DefaultMessageFilter(FilterAPI.buildSubscriptionData(topic, expression));
    }
}
