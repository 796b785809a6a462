package rocketstore.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;

/** Puts: single messages, client batches, inner batches; expiry and pauses between them. */
final class Writes {
    private static final String STORE_HOST = "10.9.8.7:10911";
    private static final String BORN_HOST = "10.1.2.3:4567";
    private final DefaultMessageStore store;

    Writes(DefaultMessageStore store) {
        this.store = store;
    }

    /** One write; what it raises is an answer, too. */
    JSONObject handle(JSONObject ask) {
        try {
            return write(ask);
        } catch (Exception error) {
            JSONObject answer = new JSONObject(true);
            answer.put("status", "raised");
            answer.put("raised", error.toString());
            return answer;
        }
    }

    private JSONObject write(JSONObject ask) throws Exception {
        switch (ask.getString("op")) {
            case "put":
                return put(ask);
            case "batch":
                return ask.getBooleanValue("inner") ? inner(ask) : batch(ask);
            case "expire":
                return Expiry.expire(store, ask);
            case "sleep":
                Thread.sleep(ask.getLongValue("ms"));
                return new JSONObject(true);
            default:
                throw new IllegalArgumentException("no such write: " + ask);
        }
    }

    private static void common(JSONObject ask, MessageExt message) throws Exception {
        message.setTopic(ask.getString("topic"));
        message.setQueueId(ask.getIntValue("queueId"));
        message.setFlag(ask.getIntValue("flag"));
        message.setSysFlag(ask.getIntValue("sysFlag"));
        message.setBornTimestamp(ask.getLongValue("bornTs"));
        String born = ask.getString("bornHost");
        String stored = ask.getString("storeHost");
        message.setBornHost(Values.host(born == null ? BORN_HOST : born));
        message.setStoreHost(Values.host(stored == null ? STORE_HOST : stored));
        message.setReconsumeTimes(ask.getIntValue("reconsume"));
        message.setPreparedTransactionOffset(ask.getLongValue("prepared"));
    }

    private JSONObject put(JSONObject ask) throws Exception {
        MessageExt message = Line.message();
        common(ask, message);
        message.setBody(Base64.getDecoder().decode(ask.getString("body")));
        Map<String, String> properties = Values.strings(ask.getJSONObject("props"));
        MessageAccessor.setProperties(message, properties);
        Line.properties(message, MessageDecoder.messageProperties2String(properties));
        return answer(Line.put(store, message));
    }

    private static byte[] encoded(JSONObject ask) throws Exception {
        JSONArray items = ask.getJSONArray("messages");
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < items.size(); i++) {
            JSONObject item = items.getJSONObject(i);
            Message message = new Message(
                ask.getString("topic"), Base64.getDecoder().decode(item.getString("body")));
            message.setFlag(item.getIntValue("flag"));
            MessageAccessor.setProperties(message, Values.strings(item.getJSONObject("props")));
            messages.add(message);
        }
        return MessageDecoder.encodeMessages(messages);
    }

    private JSONObject batch(JSONObject ask) throws Exception {
        MessageExtBatch batch = new MessageExtBatch();
        common(ask, batch);
        batch.setBody(encoded(ask));
        Map<String, String> properties = Values.strings(ask.getJSONObject("props"));
        MessageAccessor.setProperties(batch, properties);
        Line.batchProperties(batch, MessageDecoder.messageProperties2String(properties));
        return answer(store.putMessages(batch));
    }

    private JSONObject inner(JSONObject ask) throws Exception {
        MessageExt batch = Line.innerBatch();
        common(ask, batch);
        batch.setBody(encoded(ask));
        Map<String, String> properties = Values.strings(ask.getJSONObject("props"));
        MessageAccessor.setProperties(batch, properties);
        Line.properties(batch, MessageDecoder.messageProperties2String(properties));
        return answer(Line.put(store, batch));
    }

    private static JSONObject answer(PutMessageResult result) {
        JSONObject answer = new JSONObject(true);
        answer.put("status", result.getPutMessageStatus().name());
        AppendMessageResult append = result.getAppendMessageResult();
        if (append != null) {
            answer.put("append", append.getStatus().name());
            answer.put("offset", append.getWroteOffset());
            answer.put("bytes", append.getWroteBytes());
            answer.put("queueOffset", append.getLogicsOffset());
            answer.put("storeTs", append.getStoreTimestamp());
            answer.put("msgId", append.getMsgId());
        }
        return answer;
    }
}
