package rocketstore.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The stock producer, the stock pull consumer, a push consumer and a transactional producer. */
@SuppressWarnings("deprecation")
final class ClientSession {
    private static final long SEND_MS = 30000;
    private DefaultMQProducer producer;
    private DefaultMQPullConsumer consumer;
    private DefaultMQPushConsumer subscriber;
    private ConcurrentLinkedQueue<MessageExt> received;
    private TransactionalProducer transactions;

    JSONObject handle(JSONObject request) throws Exception {
        switch (request.getString("op")) {
            case "connect":
                return connect(request);
            case "produce":
                return produce(request);
            case "queues":
                return queues(request.getString("topic"));
            case "pull":
                return pull(request);
            case "query":
                return query(request);
            case "unique":
                return unique(request);
            case "commit":
                return commit(request);
            case "committed":
                return committed(request);
            case "subscribe":
                return subscribe(request);
            case "received":
                return BrokerDriver.of("messages", rows(new ArrayList<>(received)));
            case "unsubscribe":
                subscriber.shutdown();
                return new JSONObject(true);
            case "transactional":
                transactions = new TransactionalProducer(request);
                return new JSONObject(true);
            case "transact":
                return transactions.transact(request);
            case "asked":
                return transactions.asked();
            case "no longer transactional":
                transactions.stop();
                return new JSONObject(true);
            case "stop":
                producer.shutdown();
                consumer.shutdown();
                return new JSONObject(true);
            default:
                throw new IllegalArgumentException("no such operation");
        }
    }

    private JSONObject connect(JSONObject request) throws Exception {
        String names = "127.0.0.1:" + request.getIntValue("namePort");
        producer = new DefaultMQProducer("producers");
        producer.setNamesrvAddr(names);
        producer.setInstanceName("producer-" + System.nanoTime());
        producer.setSendMsgTimeout((int) SEND_MS);
        producer.start();
        consumer = new DefaultMQPullConsumer(request.getString("group"));
        consumer.setNamesrvAddr(names);
        consumer.setInstanceName("consumer-" + System.nanoTime());
        consumer.start();
        return new JSONObject(true);
    }

    /** Send messages to one queue each, in order; answers where the broker put them. */
    private JSONObject produce(JSONObject request) throws Exception {
        JSONArray rows = new JSONArray();
        for (Object item : request.getJSONArray("messages")) {
            JSONObject one = (JSONObject) item;
            Message message = new Message(one.getString("topic"),
                Base64.getDecoder().decode(one.getString("body")));
            Map<String, String> properties = Values.strings(one.getJSONObject("props"));
            properties.forEach((name, value) -> MessageAccessor.putProperty(message, name, value));
            MessageQueue queue = new MessageQueue(
                one.getString("topic"), "rocketstore", one.getIntValue("queueId"));
            SendResult result = producer.send(message, queue, SEND_MS);
            JSONObject row = new JSONObject(true);
            row.put("status", result.getSendStatus().name());
            row.put("uniqKey", result.getMsgId());
            row.put("offsetMsgId", result.getOffsetMsgId());
            row.put("queueOffset", result.getQueueOffset());
            rows.add(row);
        }
        return BrokerDriver.of("sent", rows);
    }

    private JSONObject queues(String topic) throws Exception {
        JSONArray rows = new JSONArray();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
            JSONObject row = new JSONObject(true);
            row.put("queueId", queue.getQueueId());
            row.put("min", consumer.minOffset(queue));
            row.put("max", consumer.maxOffset(queue));
            rows.add(row);
        }
        return BrokerDriver.of("queues", rows);
    }

    /** Pull from "offset" to the queue's end. */
    private JSONObject pull(JSONObject request) throws Exception {
        MessageQueue queue = new MessageQueue(
            request.getString("topic"), "rocketstore", request.getIntValue("queueId"));
        List<MessageExt> found = new ArrayList<>();
        long next = request.getLongValue("offset");
        while (true) {
            PullResult result = consumer.pull(queue, "*", next, 32, SEND_MS);
            next = result.getNextBeginOffset();
            if (result.getPullStatus() == PullStatus.FOUND) {
                found.addAll(result.getMsgFoundList());
            } else if (next >= result.getMaxOffset()) {
                JSONObject answer = BrokerDriver.of("messages", rows(found));
                answer.put("next", next);
                return answer;
            }
        }
    }

    private JSONObject query(JSONObject request) throws Exception {
        QueryResult result = consumer.queryMessage(request.getString("topic"),
            request.getString("key"), 64, request.getLongValue("begin"),
            request.getLongValue("end"));
        return BrokerDriver.of("messages", rows(result.getMessageList()));
    }

    private JSONObject unique(JSONObject request) throws Exception {
        List<MessageExt> found = new ArrayList<>();
        // The consumer's own viewMessage first takes a unique key for an offset message id, and
        // tries to reach the host that it seems to name.
        found.add(consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory()
            .getMQAdminImpl().queryMessageByUniqKey(
                request.getString("topic"), request.getString("uniqKey")));
        return BrokerDriver.of("messages", rows(found));
    }

    /** Consume a topic from its beginning, all of it or by an SQL92 expression. */
    private JSONObject subscribe(JSONObject request) throws Exception {
        ConcurrentLinkedQueue<MessageExt> taken = new ConcurrentLinkedQueue<>();
        received = taken;
        subscriber = new DefaultMQPushConsumer(request.getString("group"));
        subscriber.setNamesrvAddr("127.0.0.1:" + request.getIntValue("namePort"));
        subscriber.setInstanceName("subscriber-" + System.nanoTime());
        subscriber.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        String expression = request.getString("expression");
        subscriber.subscribe(request.getString("topic"),
            expression == null ? MessageSelector.byTag("*") : MessageSelector.bySql(expression));
        subscriber.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            taken.addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        subscriber.start();
        return new JSONObject(true);
    }

    private JSONObject commit(JSONObject request) throws Exception {
        MessageQueue queue = new MessageQueue(
            request.getString("topic"), "rocketstore", request.getIntValue("queueId"));
        consumer.getOffsetStore().updateConsumeOffsetToBroker(
            queue, request.getLongValue("offset"), false);
        return new JSONObject(true);
    }

    private JSONObject committed(JSONObject request) throws Exception {
        MessageQueue queue = new MessageQueue(
            request.getString("topic"), "rocketstore", request.getIntValue("queueId"));
        JSONObject answer = new JSONObject(true);
        answer.put("offset",
            consumer.getOffsetStore().readOffset(queue, ReadOffsetType.READ_FROM_STORE));
        return answer;
    }

    private static JSONArray rows(List<MessageExt> messages) {
        JSONArray rows = new JSONArray();
        for (MessageExt message : messages) {
            JSONObject row = new JSONObject(true);
            row.put("topic", message.getTopic());
            row.put("queueId", message.getQueueId());
            row.put("queueOffset", message.getQueueOffset());
            row.put("physicalOffset", message.getCommitLogOffset());
            row.put("storeTimestamp", message.getStoreTimestamp());
            row.put("body", Base64.getEncoder().encodeToString(message.getBody()));
            row.put("tags", message.getTags());
            row.put("keys", message.getKeys());
            row.put("uniqKey", message.getProperty("UNIQ_KEY"));
            rows.add(row);
        }
        return rows;
    }
}
