package rocketstore.interop;

import java.io.File;
import java.lang.reflect.Proxy;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.broker.offset.LmqConsumerOffsetManager;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.ConfigManager;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** The tables of a broker that is built and never started; they ask it where their files lie. */
final class Tables {
    private final MessageStoreConfig config = new MessageStoreConfig();
    private final BrokerController broker;
    private final LmqConsumerOffsetManager light;

    Tables(String home) {
        BrokerConfig names = new BrokerConfig();
        names.setRocketmqHome(home);
        names.setBrokerIP1("127.0.0.1");
        names.setBrokerIP2("127.0.0.1");
        setRoot(home + File.separator + "store");
        broker = new BrokerController(
            names, new NettyServerConfig(), new NettyClientConfig(), config);
        // The schedule service asks a store for the configuration, and nothing else.
        broker.setMessageStore((MessageStore) Proxy.newProxyInstance(
            Tables.class.getClassLoader(), new Class<?>[] {MessageStore.class},
            (store, method, arguments) -> {
                if (method.getName().equals("getMessageStoreConfig")) {
                    return config;
                }
                throw new UnsupportedOperationException("there is no store: " + method);
            }));
        light = new LmqConsumerOffsetManager(broker);
    }

    void setRoot(String root) {
        config.setStorePathRootDir(root);
    }

    ConfigManager manager(String table) {
        switch (table) {
            case "topics":
                return broker.getTopicConfigManager();
            case "groups":
                return broker.getSubscriptionGroupManager();
            case "offsets":
                return broker.getConsumerOffsetManager();
            case "light":
                return light;
            case "delays":
                return broker.getScheduleMessageService();
            case "filters":
                return broker.getConsumerFilterManager();
            default:
                throw new IllegalArgumentException("no such table");
        }
    }

    boolean load(String table) {
        // Its plain load goes on to look at the queues, which are not here.
        return "delays".equals(table)
            ? broker.getScheduleMessageService().loadWhenSyncDelayOffset()
            : manager(table).load();
    }

    boolean register(ConfigManager manager, String topic, String group, String expression) {
        return ((ConsumerFilterManager) manager).register(topic, group, expression, "SQL92", 7);
    }
}
