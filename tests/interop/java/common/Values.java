package rocketstore.interop;

import com.alibaba.fastjson.JSONObject;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.LinkedHashMap;
import java.util.Map;

/** Hosts, digests and maps, between JSON and Java. */
final class Values {
    private Values() {
    }

    static InetSocketAddress host(String text) throws Exception {
        int colon = text.lastIndexOf(':');
        String address = text.substring(0, colon);
        if (address.startsWith("[")) {
            address = address.substring(1, address.length() - 1);
        }
        return new InetSocketAddress(
            InetAddress.getByName(address), Integer.parseInt(text.substring(colon + 1)));
    }

    static Map<String, String> strings(JSONObject object) {
        Map<String, String> map = new LinkedHashMap<>();
        if (object != null) {
            for (String name : object.keySet()) {
                map.put(name, object.getString(name));
            }
        }
        return map;
    }

    /** The first 16 hexadecimal digits of the SHA-1 of what is left in the buffer. */
    static String digest(ByteBuffer buffer) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-1");
        digest.update(buffer.duplicate());
        byte[] bytes = digest.digest();
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < 8; i++) {
            text.append(String.format("%02x", bytes[i]));
        }
        return text.toString();
    }
}
