package rocketstore.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.QueryMessageResult;

/** Questions to a store, and its answers as the tests compare them. */
final class Questions {
    /** Where the fields of a record that a list shows stand. */
    private static final int QUEUE_ID_AT = 12;
    private static final int QUEUE_OFFSET_AT = 20;
    private static final int PHYSICAL_OFFSET_AT = 28;
    private static final long WAIT_MS = 120_000;
    private final DefaultMessageStore store;

    Questions(DefaultMessageStore store) {
        this.store = store;
    }

    JSONObject handle(JSONObject ask) {
        try {
            switch (ask.getString("op")) {
                case "wait":
                    return awaitDispatch();
                case "info":
                    return info();
                case "dumpall":
                    return dumpAll(ask.getJSONArray("queues"));
                case "get":
                    return get(ask);
                case "query":
                    return query(ask);
                case "bytime":
                    return byTime(ask);
                case "look":
                    return look(ask);
                default:
                    throw new IllegalArgumentException("no such question: " + ask);
            }
        } catch (Exception error) {
            JSONObject answer = new JSONObject(true);
            answer.put("raised", error.toString());
            return answer;
        }
    }

    JSONObject info() {
        JSONObject answer = new JSONObject(true);
        answer.put("minPhy", store.getMinPhyOffset());
        answer.put("maxPhy", store.getMaxPhyOffset());
        answer.put("behind", store.dispatchBehindBytes());
        return answer;
    }

    private JSONObject awaitDispatch() throws Exception {
        long deadline = System.currentTimeMillis() + WAIT_MS;
        // Less than none: a damaged queue names an offset behind the log, and nothing will come.
        while (store.dispatchBehindBytes() > 0) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("dispatch is behind for two minutes");
            }
            Thread.sleep(1);
        }
        return info();
    }

    private static JSONObject listed(ByteBuffer record) throws Exception {
        JSONObject row = new JSONObject(true);
        int at = record.position();
        row.put("size", record.remaining());
        if (record.remaining() < PHYSICAL_OFFSET_AT + Long.BYTES) {
            // A unit of a size that no record has.
            row.put("queueId", -1);
            row.put("queueOffset", -1L);
            row.put("offset", -1L);
            row.put("sha1", Values.digest(record));
            return row;
        }
        row.put("queueId", record.getInt(at + QUEUE_ID_AT));
        row.put("queueOffset", record.getLong(at + QUEUE_OFFSET_AT));
        row.put("offset", record.getLong(at + PHYSICAL_OFFSET_AT));
        row.put("sha1", Values.digest(record));
        return row;
    }

    /** Shows the named queues, or all that the store lists: those in RocksDB it does not list. */
    private JSONObject dumpAll(JSONArray named) throws Exception {
        JSONArray rows = new JSONArray();
        for (int i = 0; named != null && i < named.size(); i++) {
            JSONArray queue = named.getJSONArray(i);
            rows.add(dump(queue.getString(0), queue.getIntValue(1)));
        }
        if (named != null) {
            return dumped(rows);
        }
        Map<String, ? extends Map<Integer, ?>> table = store.getConsumeQueueTable();
        for (String topic : new TreeMap<>(table).keySet()) {
            for (int queueId : new TreeMap<>(table.get(topic)).keySet()) {
                rows.add(dump(topic, queueId));
            }
        }
        return dumped(rows);
    }

    private JSONObject dumped(JSONArray rows) {
        JSONObject answer = new JSONObject(true);
        answer.put("queues", rows);
        answer.putAll(info());
        return answer;
    }

    private JSONObject dump(String topic, int queueId) throws Exception {
        long first = store.getMinOffsetInQueue(topic, queueId);
        long end = store.getMaxOffsetInQueue(topic, queueId);
        JSONArray messages = new JSONArray();
        for (long offset = first; offset < end; ) {
            GetMessageResult result = store.getMessage("g", topic, queueId, offset, 32, null);
            for (ByteBuffer record : result.getMessageBufferList()) {
                messages.add(listed(record));
            }
            long next = result.getNextBeginOffset();
            result.release();
            if (next <= offset) {
                break;
            }
            offset = next;
        }
        JSONObject row = new JSONObject(true);
        row.put("topic", topic);
        row.put("queueId", queueId);
        row.put("min", first);
        row.put("max", end);
        row.put("messages", messages);
        return row;
    }

    private JSONObject get(JSONObject ask) throws Exception {
        String topic = ask.getString("topic");
        MessageFilter filter =
            ask.containsKey("tags") ? Line.tags(topic, ask.getString("tags")) : null;
        GetMessageResult result = store.getMessage("g", topic, ask.getIntValue("queueId"),
            ask.getLongValue("offset"), ask.getIntValue("max"), filter);
        JSONObject answer = new JSONObject(true);
        answer.put("status", result.getStatus().name());
        answer.put("next", result.getNextBeginOffset());
        answer.put("min", result.getMinOffset());
        answer.put("max", result.getMaxOffset());
        JSONArray messages = new JSONArray();
        for (ByteBuffer record : result.getMessageBufferList()) {
            messages.add(listed(record));
        }
        answer.put("messages", messages);
        result.release();
        return answer;
    }

    private JSONObject query(JSONObject ask) throws Exception {
        long begin = ask.containsKey("begin") ? ask.getLongValue("begin") : 0;
        long end = ask.containsKey("end") ? ask.getLongValue("end") : Long.MAX_VALUE;
        QueryMessageResult result = store.queryMessage(
            ask.getString("topic"), ask.getString("key"), ask.getIntValue("max"), begin, end);
        JSONObject answer = new JSONObject(true);
        answer.put("lastTs", result.getIndexLastUpdateTimestamp());
        answer.put("lastOffset", result.getIndexLastUpdatePhyoffset());
        JSONArray messages = new JSONArray();
        for (ByteBuffer record : result.getMessageBufferList()) {
            messages.add(listed(record));
        }
        answer.put("messages", messages);
        result.release();
        return answer;
    }

    private JSONObject byTime(JSONObject ask) {
        JSONObject answer = new JSONObject(true);
        answer.put("offset", store.getOffsetInQueueByTime(
            ask.getString("topic"), ask.getIntValue("queueId"), ask.getLongValue("ts")));
        return answer;
    }

    private static String host(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        return host.getAddress().getHostAddress() + ":" + host.getPort();
    }

    private JSONObject look(JSONObject ask) {
        MessageExt message = store.lookMessageByOffset(ask.getLongValue("offset"));
        JSONObject answer = new JSONObject(true);
        answer.put("message", message == null ? null : decoded(message));
        return answer;
    }

    private static JSONObject decoded(MessageExt message) {
        JSONObject row = new JSONObject(true);
        row.put("topic", message.getTopic());
        row.put("queueId", message.getQueueId());
        row.put("queueOffset", message.getQueueOffset());
        row.put("offset", message.getCommitLogOffset());
        row.put("size", message.getStoreSize());
        row.put("flag", message.getFlag());
        row.put("sysFlag", message.getSysFlag());
        row.put("bornTs", message.getBornTimestamp());
        row.put("storeTs", message.getStoreTimestamp());
        row.put("bornHost", host(message.getBornHost()));
        row.put("storeHost", host(message.getStoreHost()));
        row.put("reconsume", message.getReconsumeTimes());
        row.put("prepared", message.getPreparedTransactionOffset());
        row.put("bodyCrc", message.getBodyCRC());
        byte[] body = message.getBody();
        row.put("body", body == null ? "" : Base64.getEncoder().encodeToString(body));
        row.put("props", message.getProperties());
        return row;
    }
}
