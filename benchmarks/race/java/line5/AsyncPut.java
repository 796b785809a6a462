package rocketstore.interop;

import java.util.concurrent.CompletableFuture;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;

/** A put that does not wait for the disk, as the 5.x line has it. */
final class AsyncPut {
    private AsyncPut() {
    }

    static CompletableFuture<PutMessageResult> put(DefaultMessageStore store, MessageExt message) {
        return store.asyncPutMessage((MessageExtBrokerInner) message);
    }
}
