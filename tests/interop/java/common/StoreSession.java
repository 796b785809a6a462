package rocketstore.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** One store: opened, written to, asked, closed. */
final class StoreSession {
    private DefaultMessageStore store;
    private Writes writes;
    private Questions questions;

    JSONObject handle(JSONObject request) throws Exception {
        String op = request.getString("op");
        switch (op) {
            case "open":
                return open(request);
            case "script":
                return script(request);
            case "ask":
                return ask(request.getJSONArray("questions"));
            case "close":
                store.shutdown();
                store = null;
                return new JSONObject(true);
            default:
                throw new IllegalArgumentException("no such operation: " + op);
        }
    }

    private JSONObject open(JSONObject request) throws Exception {
        String root = request.getString("root");
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + "/commitlog");
        // Several stores live in one process: the port of replication is any free one.
        config.setHaListenPort(0);
        Properties properties = new Properties();
        properties.putAll(request.getJSONObject("config"));
        MixAll.properties2Object(properties, config);
        Map<String, Map<String, String>> topics = new LinkedHashMap<>();
        JSONObject given = request.getJSONObject("topics");
        if (given != null) {
            for (String topic : given.keySet()) {
                topics.put(topic, Values.strings(given.getJSONObject(topic)));
            }
        }
        long began = System.nanoTime();
        // The 4.9 line builds tables of its statistics without a lock.
        synchronized (StoreSession.class) {
            store = Line.store(config, topics);
        }
        JSONObject answer = new JSONObject(true);
        boolean loaded = store.load();
        answer.put("load", loaded);
        answer.put("loadMs", (System.nanoTime() - began) / 1e6);
        if (!loaded) {
            return answer;
        }
        store.start();
        Expiry.byHandOnly(store);
        answer.put("startMs", (System.nanoTime() - began) / 1e6);
        writes = new Writes(store);
        questions = new Questions(store);
        answer.putAll(questions.info());
        return answer;
    }

    /** Does all writes; with "acks" each answer is also told at once, in a line of its own. */
    private JSONObject script(JSONObject request) throws Exception {
        JSONArray asked = request.getJSONArray("writes");
        boolean acks = request.getBooleanValue("acks");
        JSONArray answers = new JSONArray();
        for (int i = 0; i < asked.size(); i++) {
            JSONObject done = writes.handle(asked.getJSONObject(i));
            answers.add(done);
            if (acks) {
                JSONObject line = new JSONObject(true);
                line.put("ack", i);
                line.put("answer", done);
                StoreDriver.answer(request.get("id"), line);
            }
        }
        JSONObject answer = new JSONObject(true);
        answer.put("answers", answers);
        return answer;
    }

    private JSONObject ask(JSONArray asked) throws Exception {
        JSONArray answers = new JSONArray();
        for (int i = 0; i < asked.size(); i++) {
            answers.add(questions.handle(asked.getJSONObject(i)));
        }
        JSONObject answer = new JSONObject(true);
        answer.put("answers", answers);
        return answer;
    }
}
