package rocketstore.interop;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/** The file that messages.py writes, and the messages that it stands for. */
final class MessageSet {
    static final InetSocketAddress BORN_HOST = new InetSocketAddress("10.1.2.3", 40321);
    static final InetSocketAddress STORE_HOST = new InetSocketAddress("127.0.0.1", 10911);
    private static final String ZEROS = "0000000000000000";
    final String[] topics;
    final int count;
    private final Kind[] kinds;
    private final byte[] pool;
    private final long[] born;
    private final int[] bodyAt;
    private final int[] bodyLength;
    private final short[] topic;
    private final short[] queue;
    private final short[] kind;
    private final int[] samples;

    /** What the messages of one kind share. */
    private static final class Kind {
        int sysFlag;
        int reconsumeTimes;
        long preparedTransactionOffset;
        String[] names;
        String[] values;
    }

    MessageSet(String path) throws IOException {
        try (DataInputStream in = new DataInputStream(
                new BufferedInputStream(Files.newInputStream(Paths.get(path)), 1 << 20))) {
            byte[] magic = new byte[8];
            in.readFully(magic);
            if (!new String(magic, StandardCharsets.US_ASCII).equals("RACESET1")) {
                throw new IOException(path + " is not a message set");
            }
            count = in.readInt();
            topics = new String[in.readInt()];
            kinds = new Kind[in.readInt()];
            pool = new byte[in.readInt()];
            samples = new int[in.readInt()];
            for (int i = 0; i < topics.length; i++) {
                topics[i] = in.readUTF();
            }
            for (int i = 0; i < kinds.length; i++) {
                kinds[i] = kind(in);
            }
            in.readFully(pool);
            born = new long[count];
            bodyAt = new int[count];
            bodyLength = new int[count];
            topic = new short[count];
            queue = new short[count];
            kind = new short[count];
            for (int i = 0; i < count; i++) {
                born[i] = in.readLong();
                bodyAt[i] = in.readInt();
                bodyLength[i] = in.readInt();
                topic[i] = in.readShort();
                queue[i] = in.readShort();
                kind[i] = in.readShort();
                in.readShort();
            }
            for (int i = 0; i < samples.length; i++) {
                samples[i] = in.readInt();
            }
        }
    }

    private static Kind kind(DataInputStream in) throws IOException {
        Kind found = new Kind();
        found.sysFlag = in.readInt();
        found.reconsumeTimes = in.readInt();
        found.preparedTransactionOffset = in.readLong();
        int properties = in.readUnsignedShort();
        found.names = new String[properties];
        found.values = new String[properties];
        for (int i = 0; i < properties; i++) {
            found.names[i] = in.readUTF();
            found.values[i] = in.readUTF();
        }
        return found;
    }

    private static String value(String template, int number) {
        switch (template) {
            case "{key}":
                return key(number);
            case "{unique}":
                return "C0A801171F2A5FFD2B27" + padded(Integer.toHexString(number), 12);
            case "{origin}":
                return "7F00000100002A9F" + padded(Integer.toHexString(number), 16);
            case "{tag}":
                return "Tag" + (char) ('A' + number % 8);
            default:
                return template;
        }
    }

    private static String padded(String digits, int width) {
        return ZEROS.substring(0, width - digits.length()) + digits.toUpperCase(Locale.ROOT);
    }

    static String key(int number) {
        return "order-" + padded(Integer.toString(number), 8);
    }

    /** The number of the i-th message that is asked for, among the first {@code limit} messages. */
    int sample(int i, int limit) {
        return samples[i % samples.length] % limit;
    }

    String topicOf(int number) {
        return topics[topic[number]];
    }

    int queueOf(int number) {
        return queue[number];
    }

    byte[] body(int number) {
        return Arrays.copyOfRange(pool, bodyAt[number], bodyAt[number] + bodyLength[number]);
    }

    /** In their stored order. */
    Map<String, String> properties(int number) {
        Kind shared = kinds[kind[number]];
        Map<String, String> found = new LinkedHashMap<>();
        for (int i = 0; i < shared.names.length; i++) {
            found.put(shared.names[i], value(shared.values[i], number));
        }
        return found;
    }

    /** A message as a broker hands it to its store. */
    MessageExt inner(int number) {
        Kind shared = kinds[kind[number]];
        MessageExt message = Line.message();
        common(message, number);
        message.setBody(body(number));
        message.setSysFlag(shared.sysFlag);
        message.setReconsumeTimes(shared.reconsumeTimes);
        message.setPreparedTransactionOffset(shared.preparedTransactionOffset);
        String text = MessageDecoder.messageProperties2String(properties(number));
        MessageAccessor.setProperties(message, MessageDecoder.string2messageProperties(text));
        Line.properties(message, text);
        return message;
    }

    void common(MessageExt message, int number) {
        message.setTopic(topicOf(number));
        message.setQueueId(queueOf(number));
        message.setBornTimestamp(born[number]);
        message.setBornHost(BORN_HOST);
        message.setStoreHost(STORE_HOST);
    }

    /** A message of a client's batch. */
    Message plain(String topicName, int number) {
        Message message = new Message(topicName, body(number));
        MessageAccessor.setProperties(message, properties(number));
        return message;
    }

    static Map<String, String> none() {
        return new HashMap<>();
    }
}
