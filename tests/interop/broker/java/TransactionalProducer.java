package rocketstore.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.Base64;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/** The stock producer of transactions: what it says of each at once, and when the broker asks. */
final class TransactionalProducer {
    private final TransactionMQProducer producer;
    private final ConcurrentLinkedQueue<String> asked = new ConcurrentLinkedQueue<>();

    /** "answers" has the state that is given for a message's KEYS when the broker asks. */
    TransactionalProducer(JSONObject request) throws Exception {
        Map<String, String> answers = Values.strings(request.getJSONObject("answers"));
        producer = new TransactionMQProducer(request.getString("group"));
        producer.setNamesrvAddr("127.0.0.1:" + request.getIntValue("namePort"));
        producer.setInstanceName("transactions-" + System.nanoTime());
        producer.setSendMsgTimeout(30000);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return LocalTransactionState.valueOf((String) state);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                asked.add(message.getKeys());
                return LocalTransactionState.valueOf(
                    answers.getOrDefault(message.getKeys(), "UNKNOW"));
            }
        });
        producer.start();
        // A group whose producer the broker does not know yet is not asked.
        for (Object topic : request.getJSONArray("topics")) {
            producer.getDefaultMQProducerImpl().getMqClientFactory()
                .updateTopicRouteInfoFromNameServer((String) topic);
        }
        producer.getDefaultMQProducerImpl().getMqClientFactory().sendHeartbeatToAllBrokerWithLock();
    }

    /** Send messages whose transactions get their "state" at once. */
    JSONObject transact(JSONObject request) throws Exception {
        JSONArray rows = new JSONArray();
        for (Object item : request.getJSONArray("messages")) {
            JSONObject one = (JSONObject) item;
            Message message = new Message(one.getString("topic"),
                Base64.getDecoder().decode(one.getString("body")));
            Map<String, String> properties = Values.strings(one.getJSONObject("props"));
            properties.forEach((name, value) -> MessageAccessor.putProperty(message, name, value));
            TransactionSendResult result =
                producer.sendMessageInTransaction(message, one.getString("state"));
            JSONObject row = new JSONObject(true);
            row.put("status", result.getSendStatus().name());
            row.put("transactionId", result.getTransactionId());
            rows.add(row);
        }
        return BrokerDriver.of("sent", rows);
    }

    /** KEYS of the messages that the broker asked about, each time it did. */
    JSONObject asked() {
        return BrokerDriver.of("keys", new JSONArray(new java.util.ArrayList<>(asked)));
    }

    void stop() {
        producer.shutdown();
    }
}
