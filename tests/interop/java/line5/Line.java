package rocketstore.interop;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.store.DefaultMessageFilter;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What the 5.x line names differently from the 4.9 line. */
final class Line {
    private static final String ROCKSDB = "defaultRocksDB";

    private Line() {
    }

    static DefaultMessageStore store(MessageStoreConfig config, Map<String, Map<String, String>> topics)
            throws Exception {
        ConcurrentMap<String, TopicConfig> table = new ConcurrentHashMap<>();
        for (Map.Entry<String, Map<String, String>> entry : topics.entrySet()) {
            TopicConfig topic = new TopicConfig(entry.getKey());
            topic.setAttributes(entry.getValue());
            table.put(entry.getKey(), topic);
        }
        MessageArrivingListener listener = (t, q, offset, tags, time, bits, properties) -> { };
        BrokerStatsManager statistics = new BrokerStatsManager("c", false);
        if (ROCKSDB.equals(config.getStoreType())) {
            // Not in 5.1.4.
            return (DefaultMessageStore) Class.forName("org.apache.rocketmq.store.RocksDBMessageStore")
                .getConstructor(MessageStoreConfig.class, BrokerStatsManager.class,
                    MessageArrivingListener.class, BrokerConfig.class, ConcurrentMap.class)
                .newInstance(config, statistics, listener, new BrokerConfig(), table);
        }
        return new DefaultMessageStore(config, statistics, listener, new BrokerConfig(), table);
    }

    static MessageExt message() {
        return new MessageExtBrokerInner();
    }

    static MessageExt innerBatch() {
        MessageExtBatch batch = new MessageExtBatch();
        batch.setInnerBatch(true);
        return batch;
    }

    static void properties(MessageExt message, String text) {
        ((MessageExtBrokerInner) message).setPropertiesString(text);
    }

    static PutMessageResult put(DefaultMessageStore store, MessageExt message) {
        return store.putMessage((MessageExtBrokerInner) message);
    }

    static void batchProperties(MessageExtBatch batch, String text) {
        batch.setPropertiesString(text);
    }

    static MessageFilter tags(String topic, String expression) throws Exception {
        return new DefaultMessageFilter(FilterAPI.buildSubscriptionData(topic, expression));
    }
}
