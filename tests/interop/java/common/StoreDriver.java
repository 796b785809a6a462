package rocketstore.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.parser.Feature;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Opens stores of the RocketMQ version on its class path and does what lines of JSON on standard
 * input ask for. Each store has a thread of its own, so stores work and close beside one another;
 * what concerns one store is done in the order it came. Every request has an "id", and so has every
 * line of answer.
 */
public final class StoreDriver {
    private static final PrintStream ANSWERS =
        new PrintStream(new FileOutputStream(FileDescriptor.out), false);
    private final Map<String, StoreSession> sessions = new HashMap<>();
    private final Map<String, ExecutorService> threads = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        // RocketMQ prints to standard output here and there.
        System.setOut(System.err);
        new StoreDriver().serve();
        Runtime.getRuntime().halt(0);
    }

    static void answer(Object id, JSONObject answer) {
        answer.put("id", id);
        String line = JSON.toJSONString(answer, SerializerFeature.WriteMapNullValue,
            SerializerFeature.DisableCircularReferenceDetect);
        byte[] bytes = (line + "\n").getBytes(StandardCharsets.UTF_8);
        synchronized (ANSWERS) {
            ANSWERS.write(bytes, 0, bytes.length);
            ANSWERS.flush();
        }
    }

    private void serve() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(
            new FileInputStream(FileDescriptor.in), StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JSONObject request = JSON.parseObject(line, Feature.OrderedField);
            if ("halt".equals(request.getString("op"))) {
                Runtime.getRuntime().halt(0);
            }
            String name = request.getString("store");
            StoreSession session = sessions.computeIfAbsent(name, key -> new StoreSession());
            threads.computeIfAbsent(name, key -> Executors.newSingleThreadExecutor())
                .execute(() -> run(session, request));
        }
    }

    private static void run(StoreSession session, JSONObject request) {
        JSONObject answer;
        try {
            answer = session.handle(request);
        } catch (Throwable error) {
            error.printStackTrace();
            answer = new JSONObject(true);
            answer.put("error", error.toString());
        }
        answer(request.get("id"), answer);
    }
}
