package rocketstore.interop;

import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/** Stand-in for the filters of consumers, whose classes are in no public repository for 4.9. */
public final class FilterTable extends RemotingSerializable {
    private ConcurrentMap<String, Topic> filterDataByTopic = new ConcurrentHashMap<>();

    public ConcurrentMap<String, Topic> getFilterDataByTopic() {
        return filterDataByTopic;
    }

    public void setFilterDataByTopic(ConcurrentMap<String, Topic> filterDataByTopic) {
        this.filterDataByTopic = filterDataByTopic;
    }

    /** The filters of one topic. */
    public static final class Topic {
        private String topic;
        private ConcurrentMap<String, Entry> groupFilterData = new ConcurrentHashMap<>();

        public String getTopic() {
            return topic;
        }

        public void setTopic(String topic) {
            this.topic = topic;
        }

        public ConcurrentMap<String, Entry> getGroupFilterData() {
            return groupFilterData;
        }

        public void setGroupFilterData(ConcurrentMap<String, Entry> groupFilterData) {
            this.groupFilterData = groupFilterData;
        }
    }

    /** The bits of one consumer. */
    public static final class Bits {
        private int[] bitPos;
        private int bitNum;

        public int[] getBitPos() {
            return bitPos;
        }

        public void setBitPos(int[] bitPos) {
            this.bitPos = bitPos;
        }

        public int getBitNum() {
            return bitNum;
        }

        public void setBitNum(int bitNum) {
            this.bitNum = bitNum;
        }
    }

    /** One consumer's filter on one topic. */
    public static final class Entry {
        private String consumerGroup;
        private String topic;
        private String expression;
        private String expressionType;
        private long bornTime;
        private long deadTime;
        private long clientVersion;
        private Bits bloomFilterData;

        public String getConsumerGroup() {
            return consumerGroup;
        }

        public void setConsumerGroup(String consumerGroup) {
            this.consumerGroup = consumerGroup;
        }

        public String getTopic() {
            return topic;
        }

        public void setTopic(String topic) {
            this.topic = topic;
        }

        public String getExpression() {
            return expression;
        }

        public void setExpression(String expression) {
            this.expression = expression;
        }

        public String getExpressionType() {
            return expressionType;
        }

        public void setExpressionType(String expressionType) {
            this.expressionType = expressionType;
        }

        public long getBornTime() {
            return bornTime;
        }

        public void setBornTime(long bornTime) {
            this.bornTime = bornTime;
        }

        public long getDeadTime() {
            return deadTime;
        }

        public void setDeadTime(long deadTime) {
            this.deadTime = deadTime;
        }

        public long getClientVersion() {
            return clientVersion;
        }

        public void setClientVersion(long clientVersion) {
            this.clientVersion = clientVersion;
        }

        public Bits getBloomFilterData() {
            return bloomFilterData;
        }

        public void setBloomFilterData(Bits bloomFilterData) {
            this.bloomFilterData = bloomFilterData;
        }

        public boolean isDead() {
            return deadTime >= bornTime;
        }
    }
}
