package rocketstore.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.File;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Properties;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** The name server and the broker. */
final class BrokerSession {
    private NamesrvController nameServer;
    private BrokerController broker;

    JSONObject handle(JSONObject request) throws Exception {
        switch (request.getString("op")) {
            case "start":
                return start(request);
            case "stop":
                broker.shutdown();
                return new JSONObject(true);
            case "bounds":
                return bounds();
            case "expire":
                return expire(request);
            default:
                throw new IllegalArgumentException("no such operation");
        }
    }

    private JSONObject start(JSONObject request) throws Exception {
        if (nameServer == null) {
            NamesrvConfig names = new NamesrvConfig();
            names.setKvConfigPath(request.getString("home") + "/kvConfig.json");
            nameServer = new NamesrvController(names, listening(request.getIntValue("namePort")));
            if (!nameServer.initialize()) {
                throw new IllegalStateException("the name server does not start");
            }
            nameServer.start();
        }
        long began = System.nanoTime();
        broker = new BrokerController(
            brokerConfig(request), listening(request.getIntValue("brokerPort")),
            new NettyClientConfig(), storeConfig(request));
        if (!broker.initialize()) {
            throw new IllegalStateException("the broker does not start");
        }
        broker.start();
        awaitRegistration();
        JSONObject answer = bounds();
        answer.put("startMs", (System.nanoTime() - began) / 1000000);
        return answer;
    }

    /** Register until the name server knows: a broker's first attempt may come before it looked
     * which name servers can be reached, and its next one half a minute later. */
    private void awaitRegistration() throws Exception {
        long deadline = System.currentTimeMillis() + 120000;
        String name = broker.getBrokerConfig().getBrokerName();
        do {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("the broker is not registered");
            }
            Thread.sleep(50);
            broker.registerBrokerAll(true, false, true);
        } while (!clusters().contains("\"" + name + "\""));
    }

    /** What the name server knows: an object since 5.0, before that its JSON. */
    private String clusters() throws Exception {
        Object routes = nameServer.getRouteInfoManager();
        Object found = routes.getClass().getMethod("getAllClusterInfo").invoke(routes);
        return found instanceof byte[]
            ? new String((byte[]) found, StandardCharsets.UTF_8) : JSON.toJSONString(found);
    }

    private static BrokerConfig brokerConfig(JSONObject request) {
        BrokerConfig config = new BrokerConfig();
        config.setRocketmqHome(request.getString("home"));
        config.setNamesrvAddr("127.0.0.1:" + request.getIntValue("namePort"));
        config.setBrokerIP1("127.0.0.1");
        config.setBrokerIP2("127.0.0.1");
        config.setBrokerName("rocketstore");
        config.setTraceTopicEnable(false);
        // Clients are told at once where messages are.
        config.setFetchNamesrvAddrByAddressServer(false);
        Properties others = new Properties();
        // Since 5.0 this says it, too.
        others.put("listenPort", request.getString("brokerPort"));
        others.putAll(Values.strings(request.getJSONObject("brokerConfig")));
        MixAll.properties2Object(others, config);
        return config;
    }

    /** A server on this port; on loopback alone since 5.0, which can be told so. */
    private static NettyServerConfig listening(int port) throws Exception {
        NettyServerConfig config = new NettyServerConfig();
        Properties others = new Properties();
        others.put("bindAddress", "127.0.0.1");
        MixAll.properties2Object(others, config);
        config.setListenPort(port);
        return config;
    }

    private static MessageStoreConfig storeConfig(JSONObject request) {
        MessageStoreConfig config = new MessageStoreConfig();
        String root = request.getString("root");
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + File.separator + "commitlog");
        config.setHaListenPort(request.getIntValue("brokerPort") + 1);
        Properties others = new Properties();
        others.putAll(Values.strings(request.getJSONObject("config")));
        MixAll.properties2Object(others, config);
        return config;
    }

    private JSONObject bounds() {
        MessageStore store = broker.getMessageStore();
        JSONObject answer = new JSONObject(true);
        answer.put("min", store.getMinPhyOffset());
        answer.put("max", store.getMaxPhyOffset());
        answer.put("behind", store.dispatchBehindBytes());
        return answer;
    }

    /**
     * Let all log files but the last "keep" look old, and the broker delete them by its own rules. Its
     * own services do it, told to begin now: their first run is a minute after the start.
     */
    private JSONObject expire(JSONObject request) throws Exception {
        MessageStore store = broker.getMessageStore();
        File[] files = new File(request.getString("root"), "commitlog").listFiles();
        Arrays.sort(files);
        int old = files.length - request.getIntValue("keep");
        long goal = old > 0 ? Long.parseLong(files[old].getName()) : 0;
        long longAgo = System.currentTimeMillis() - 100L * 3600 * 1000;
        long deadline = System.currentTimeMillis() + 120000;
        Method clean = DefaultMessageStore.class.getDeclaredMethod("cleanFilesPeriodically");
        clean.setAccessible(true);
        while (store.getMinPhyOffset() < goal) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("the broker deletes nothing");
            }
            // A file that is flushed late looks young again, and an order to delete wears off.
            for (int i = 0; i < old; i++) {
                if (!files[i].setLastModified(longAgo) && files[i].exists()) {
                    throw new IllegalStateException("cannot make " + files[i] + " old");
                }
            }
            store.executeDeleteFilesManually();
            clean.invoke(store);
            Thread.sleep(20);
        }
        return bounds();
    }
}
