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
import java.util.Arrays;
import org.apache.rocketmq.common.ConfigManager;

/**
 * Fills, persists and loads a broker's tables with the RocketMQ on its class path, as lines of JSON
 * on standard input ask. A request names the table under "store" and the directory under "root".
 * What the tables hold is set and told field by field, not through RocketMQ's own JSON.
 */
public final class ConfigDriver {
    private final PrintStream answers =
        new PrintStream(new FileOutputStream(FileDescriptor.out), false);
    private final Tables tables;

    private ConfigDriver(String home) throws Exception {
        tables = new Tables(home);
    }

    public static void main(String[] arguments) throws Exception {
        // RocketMQ prints to standard output here and there.
        System.setOut(System.err);
        new ConfigDriver(System.getProperty("user.home")).serve();
        Runtime.getRuntime().halt(0);
    }

    private void serve() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(
            new FileInputStream(FileDescriptor.in), StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JSONObject request = JSON.parseObject(line, Feature.OrderedField);
            JSONObject answer;
            try {
                answer = handle(request);
            } catch (Throwable error) {
                error.printStackTrace();
                answer = new JSONObject(true);
                answer.put("error", error.toString());
            }
            answer.put("id", request.get("id"));
            String text = JSON.toJSONString(answer, SerializerFeature.WriteMapNullValue,
                SerializerFeature.DisableCircularReferenceDetect);
            byte[] bytes = (text + "\n").getBytes(StandardCharsets.UTF_8);
            answers.write(bytes, 0, bytes.length);
            answers.flush();
        }
    }

    private JSONObject handle(JSONObject request) throws Exception {
        String table = request.getString("store");
        String[] fields = request.getJSONArray("fields").toArray(new String[0]);
        tables.setRoot(request.getString("root"));
        ConfigManager manager = tables.manager(table);
        JSONObject answer = new JSONObject(true);
        for (String field : fields) {
            Fields.clear(manager, field);
        }
        switch (request.getString("op")) {
            case "persist":
                Fields.fill(manager, request.getJSONObject("content"));
                change(manager, request);
                manager.persist();
                break;
            case "load":
                answer.put("loaded", tables.load(table));
                break;
            default:
                throw new IllegalArgumentException("no such operation");
        }
        answer.put("held", Fields.shown(manager, Arrays.asList(fields)));
        answer.put("encoded", manager.encode());
        return answer;
    }

    /** Let two names stand for one object, and let the broker make a filter of its own. */
    private void change(ConfigManager manager, JSONObject request) throws Exception {
        if (request.containsKey("share")) {
            String[] names = request.getJSONArray("share").toArray(new String[0]);
            Fields.share(manager, names[0], names[1], names[2]);
        }
        if (request.containsKey("register")) {
            String[] names = request.getJSONArray("register").toArray(new String[0]);
            if (!tables.register(manager, names[0], names[1], names[2])) {
                throw new IllegalArgumentException("the filter is refused");
            }
        }
    }
}
