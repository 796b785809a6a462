package rocketstore.interop;

import java.io.File;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.ConfigManager;
import org.apache.rocketmq.common.DataVersion;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.protocol.body.ConsumerOffsetSerializeWrapper;
import org.apache.rocketmq.common.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.common.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.schedule.ScheduleMessageService;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * The tables of 4.9. Its broker is in no public repository of jars, so five of the managers are
 * stand-ins that hold what the broker's hold. Everything that makes the files is real: the reading
 * and writing of ConfigManager, the JSON of RemotingSerializable, the entries, the wrappers and the
 * schedule service. Only the entries of filters are stand-ins too.
 */
final class Tables {
    private final MessageStoreConfig config = new MessageStoreConfig();
    private final Map<String, ConfigManager> managers = new ConcurrentHashMap<>();

    Tables(String home) throws Exception {
        setRoot(home + File.separator + "store");
        DefaultMessageStore store = new DefaultMessageStore(config,
            new BrokerStatsManager("c", false), (t, q, offset, tags, time, bits, properties) -> { },
            new BrokerConfig());
        managers.put("topics", new Topics());
        managers.put("groups", new Groups());
        managers.put("offsets", new Offsets());
        managers.put("light", new LightOffsets());
        managers.put("filters", new Filters());
        managers.put("delays", new ScheduleMessageService(store) {
            // There are no queues to correct the offsets by.
            @Override
            public boolean correctDelayOffset() {
                return true;
            }
        });
    }

    void setRoot(String root) {
        config.setStorePathRootDir(root);
    }

    ConfigManager manager(String table) {
        return managers.get(table);
    }

    boolean load(String table) {
        return manager(table).load();
    }

    boolean register(ConfigManager manager, String topic, String group, String expression) {
        throw new UnsupportedOperationException("what registers filters is in the broker");
    }

    /** A table below "config". */
    private abstract class Table extends ConfigManager {
        private final String name;

        Table(String name) {
            this.name = name;
        }

        @Override
        public String configFilePath() {
            return config.getStorePathRootDir() + File.separator + "config" + File.separator + name;
        }

        @Override
        public String encode() {
            return encode(false);
        }
    }

    private final class Topics extends Table {
        private final ConcurrentMap<String, TopicConfig> topicConfigTable =
            new ConcurrentHashMap<>();
        private DataVersion dataVersion = new DataVersion();

        Topics() {
            super("topics.json");
        }

        @Override
        public String encode(boolean pretty) {
            TopicConfigSerializeWrapper wrapper = new TopicConfigSerializeWrapper();
            wrapper.setTopicConfigTable(topicConfigTable);
            wrapper.setDataVersion(dataVersion);
            return wrapper.toJson(pretty);
        }

        @Override
        public void decode(String text) {
            TopicConfigSerializeWrapper wrapper =
                RemotingSerializable.fromJson(text, TopicConfigSerializeWrapper.class);
            topicConfigTable.putAll(wrapper.getTopicConfigTable());
            dataVersion.assignNewOne(wrapper.getDataVersion());
        }
    }

    /** What the broker's manager of groups shows to its writer of JSON. */
    public static final class GroupTable extends RemotingSerializable {
        private ConcurrentMap<String, SubscriptionGroupConfig> subscriptionGroupTable =
            new ConcurrentHashMap<>();
        private DataVersion dataVersion = new DataVersion();

        public ConcurrentMap<String, SubscriptionGroupConfig> getSubscriptionGroupTable() {
            return subscriptionGroupTable;
        }

        public void setSubscriptionGroupTable(
                ConcurrentMap<String, SubscriptionGroupConfig> subscriptionGroupTable) {
            this.subscriptionGroupTable = subscriptionGroupTable;
        }

        public DataVersion getDataVersion() {
            return dataVersion;
        }

        public void setDataVersion(DataVersion dataVersion) {
            this.dataVersion = dataVersion;
        }
    }

    private final class Groups extends Table {
        private final ConcurrentMap<String, SubscriptionGroupConfig> subscriptionGroupTable =
            new ConcurrentHashMap<>();
        private DataVersion dataVersion = new DataVersion();

        Groups() {
            super("subscriptionGroup.json");
        }

        @Override
        public String encode(boolean pretty) {
            GroupTable table = new GroupTable();
            table.setSubscriptionGroupTable(subscriptionGroupTable);
            table.setDataVersion(dataVersion);
            return table.toJson(pretty);
        }

        @Override
        public void decode(String text) {
            GroupTable table = RemotingSerializable.fromJson(text, GroupTable.class);
            subscriptionGroupTable.putAll(table.subscriptionGroupTable);
            dataVersion.assignNewOne(table.dataVersion);
        }
    }

    private final class Offsets extends Table {
        private ConcurrentMap<String, ConcurrentMap<Integer, Long>> offsetTable =
            new ConcurrentHashMap<>();

        Offsets() {
            super("consumerOffset.json");
        }

        @Override
        public String encode(boolean pretty) {
            ConsumerOffsetSerializeWrapper wrapper = new ConsumerOffsetSerializeWrapper();
            wrapper.setOffsetTable(offsetTable);
            return wrapper.toJson(pretty);
        }

        @Override
        public void decode(String text) {
            offsetTable = RemotingSerializable.fromJson(text, ConsumerOffsetSerializeWrapper.class)
                .getOffsetTable();
        }
    }

    /** What the broker's manager of light queues' offsets shows to its writer of JSON. */
    public static final class LightTable extends ConsumerOffsetSerializeWrapper {
        private ConcurrentMap<String, Long> lmqOffsetTable = new ConcurrentHashMap<>();

        public ConcurrentMap<String, Long> getLmqOffsetTable() {
            return lmqOffsetTable;
        }

        public void setLmqOffsetTable(ConcurrentMap<String, Long> lmqOffsetTable) {
            this.lmqOffsetTable = lmqOffsetTable;
        }
    }

    private final class LightOffsets extends Table {
        private ConcurrentMap<String, ConcurrentMap<Integer, Long>> offsetTable =
            new ConcurrentHashMap<>();
        private ConcurrentMap<String, Long> lmqOffsetTable = new ConcurrentHashMap<>();

        LightOffsets() {
            super("lmqConsumerOffset.json");
        }

        @Override
        public String encode(boolean pretty) {
            LightTable table = new LightTable();
            table.setOffsetTable(offsetTable);
            table.setLmqOffsetTable(lmqOffsetTable);
            return table.toJson(pretty);
        }

        @Override
        public void decode(String text) {
            LightTable table = RemotingSerializable.fromJson(text, LightTable.class);
            offsetTable = table.getOffsetTable();
            lmqOffsetTable = table.getLmqOffsetTable();
        }
    }

    private final class Filters extends Table {
        private final ConcurrentMap<String, FilterTable.Topic> filterDataByTopic =
            new ConcurrentHashMap<>();

        Filters() {
            super("consumerFilter.json");
        }

        @Override
        public String encode(boolean pretty) {
            clean();
            FilterTable table = new FilterTable();
            table.setFilterDataByTopic(filterDataByTopic);
            return table.toJson(pretty);
        }

        /** Forget consumers that are dead for a day. */
        private void clean() {
            long oldest = System.currentTimeMillis() - 24L * 3600 * 1000;
            Iterator<FilterTable.Topic> topics = filterDataByTopic.values().iterator();
            while (topics.hasNext()) {
                Map<String, FilterTable.Entry> groups = topics.next().getGroupFilterData();
                groups.values().removeIf(
                    entry -> entry.isDead() && entry.getDeadTime() <= oldest);
                if (groups.isEmpty()) {
                    topics.remove();
                }
            }
        }

        /** Those that were alive count as dead for half a minute. */
        @Override
        public void decode(String text) {
            FilterTable table = RemotingSerializable.fromJson(text, FilterTable.class);
            for (FilterTable.Topic topic : table.getFilterDataByTopic().values()) {
                for (FilterTable.Entry entry : topic.getGroupFilterData().values()) {
                    if (entry.getDeadTime() == 0) {
                        entry.setDeadTime(Math.max(
                            entry.getBornTime(), System.currentTimeMillis() - 30 * 1000));
                    }
                }
            }
            filterDataByTopic.putAll(table.getFilterDataByTopic());
        }
    }
}
