package rocketstore.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * A name server, one broker and stock clients in one process, told what to do by lines of JSON.
 * Requests that name the same "store" (broker or client) are done in order, others beside them.
 */
public final class BrokerDriver {
    private static final PrintStream ANSWERS =
        new PrintStream(new FileOutputStream(FileDescriptor.out), false);
    private final ExecutorService brokerThread = Executors.newSingleThreadExecutor();
    private final ExecutorService clientThread = Executors.newSingleThreadExecutor();
    private final BrokerSession broker = new BrokerSession();
    private final ClientSession client = new ClientSession();

    public static void main(String[] arguments) throws Exception {
        // RocketMQ prints to standard output here and there.
        System.setOut(System.err);
        // As the broker's own start does: without it name servers take it for an ancient one.
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY,
            Integer.toString(MQVersion.CURRENT_VERSION));
        new BrokerDriver().serve();
        Runtime.getRuntime().halt(0);
    }

    private void serve() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(
            new FileInputStream(FileDescriptor.in), StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JSONObject request = JSON.parseObject(line);
            if ("broker".equals(request.getString("store"))) {
                brokerThread.execute(() -> run(request, () -> broker.handle(request)));
            } else {
                clientThread.execute(() -> run(request, () -> client.handle(request)));
            }
        }
    }

    private interface Work {
        JSONObject run() throws Exception;
    }

    private static void run(JSONObject request, Work work) {
        JSONObject answer;
        try {
            answer = work.run();
        } catch (Throwable error) {
            error.printStackTrace();
            answer = new JSONObject(true);
            answer.put("error", error.toString());
        }
        answer.put("id", request.get("id"));
        byte[] bytes = (JSON.toJSONString(answer, SerializerFeature.WriteMapNullValue,
            SerializerFeature.DisableCircularReferenceDetect) + "\n")
            .getBytes(StandardCharsets.UTF_8);
        synchronized (ANSWERS) {
            ANSWERS.write(bytes, 0, bytes.length);
            ANSWERS.flush();
        }
    }

    /** An answer of one list. */
    static JSONObject of(String name, JSONArray rows) {
        JSONObject answer = new JSONObject(true);
        answer.put(name, rows);
        return answer;
    }
}
