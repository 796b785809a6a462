package rocketstore.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.lang.reflect.Array;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.util.Collection;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/** Objects of RocketMQ set from JSON and told as JSON, field by field. */
final class Fields {
    private Fields() {
    }

    /** Empty a map; give any other field a new object. */
    static void clear(Object holder, String name) throws Exception {
        Field field = field(holder.getClass(), name);
        if (field.get(holder) instanceof Map) {
            ((Map<?, ?>) field.get(holder)).clear();
        } else {
            field.set(holder, made(field.getType(), new JSONObject()));
        }
    }

    @SuppressWarnings("unchecked")
    static void fill(Object holder, JSONObject values) throws Exception {
        for (String name : values.keySet()) {
            Field field = field(holder.getClass(), name);
            Object value = made(field.getGenericType(), values.get(name));
            Object former = field.get(holder);
            if (former instanceof ConcurrentHashMap) {
                // Tables are final fields in some versions.
                ((Map<Object, Object>) former).clear();
                ((Map<Object, Object>) former).putAll((Map<Object, Object>) value);
            } else {
                field.set(holder, value);
            }
        }
    }

    /** Put what a map has under "from" under "to" too: the same object. */
    @SuppressWarnings("unchecked")
    static void share(Object holder, String name, String from, String to) throws Exception {
        Map<Object, Object> map =
            (Map<Object, Object>) field(holder.getClass(), name).get(holder);
        map.put(to, map.get(from));
    }

    static JSONObject shown(Object holder, Collection<String> names) throws Exception {
        JSONObject values = new JSONObject(true);
        for (String name : names) {
            values.put(name, shown(field(holder.getClass(), name).get(holder)));
        }
        return values;
    }

    private static Field field(Class<?> kind, String name) throws NoSuchFieldException {
        for (Class<?> at = kind; at != null; at = at.getSuperclass()) {
            for (Field field : at.getDeclaredFields()) {
                if (field.getName().equals(name)) {
                    field.setAccessible(true);
                    return field;
                }
            }
        }
        throw new NoSuchFieldException(kind + " " + name);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Object made(Type type, Object value) throws Exception {
        Class<?> kind = (Class<?>) (type instanceof ParameterizedType
            ? ((ParameterizedType) type).getRawType() : type);
        if (value == null || kind == String.class) {
            return value;
        }
        if (kind == boolean.class || kind == Boolean.class) {
            return value;
        }
        if (kind == int.class || kind == Integer.class) {
            return Math.toIntExact(whole(value));
        }
        if (kind == long.class || kind == Long.class) {
            return whole(value);
        }
        if (kind == AtomicLong.class) {
            return new AtomicLong(whole(value));
        }
        if (kind.isEnum()) {
            return Enum.valueOf((Class<Enum>) kind, (String) value);
        }
        if (kind.isArray()) {
            return array(kind.getComponentType(), (JSONArray) value);
        }
        if (Map.class.isAssignableFrom(kind)) {
            return map((ParameterizedType) type, (JSONObject) value);
        }
        if (Set.class.isAssignableFrom(kind)) {
            Set<Object> set = new HashSet<>();
            for (Object inner : (JSONArray) value) {
                set.add(made(((ParameterizedType) type).getActualTypeArguments()[0], inner));
            }
            return set;
        }
        return object(kind, (JSONObject) value);
    }

    private static long whole(Object value) {
        // Keys of JSON are text.
        return value instanceof String
            ? Long.parseLong((String) value) : ((Number) value).longValue();
    }

    private static Object array(Class<?> kind, JSONArray values) {
        Object array = Array.newInstance(kind, values.size());
        for (int i = 0; i < values.size(); i++) {
            if (kind == int.class) {
                Array.setInt(array, i, values.getIntValue(i));
            } else {
                Array.setLong(array, i, values.getLongValue(i));
            }
        }
        return array;
    }

    private static Map<Object, Object> map(ParameterizedType type, JSONObject values)
            throws Exception {
        Type[] kinds = type.getActualTypeArguments();
        Map<Object, Object> map = new ConcurrentHashMap<>();
        for (String key : values.keySet()) {
            map.put(made(kinds[0], key), made(kinds[1], values.get(key)));
        }
        return map;
    }

    /** An object of the constructor with the fewest parameters, then set field by field. */
    private static Object object(Class<?> kind, JSONObject values) throws Exception {
        Constructor<?> constructor = kind.getDeclaredConstructors()[0];
        for (Constructor<?> other : kind.getDeclaredConstructors()) {
            if (other.getParameterCount() < constructor.getParameterCount()) {
                constructor = other;
            }
        }
        Object[] nothing = new Object[constructor.getParameterCount()];
        for (int i = 0; i < nothing.length; i++) {
            Class<?> parameter = constructor.getParameterTypes()[i];
            // A new array holds the zero of its kind.
            nothing[i] = Array.get(Array.newInstance(parameter, 1), 0);
        }
        constructor.setAccessible(true);
        Object object = constructor.newInstance(nothing);
        fill(object, values);
        return object;
    }

    private static Object shown(Object value) throws Exception {
        if (value == null || value instanceof Boolean || value instanceof String) {
            return value;
        }
        if (value instanceof Number) {
            return ((Number) value).longValue();
        }
        if (value instanceof Enum) {
            return ((Enum<?>) value).name();
        }
        if (value instanceof Map) {
            JSONObject entries = new JSONObject(true);
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                entries.put(entry.getKey().toString(), shown(entry.getValue()));
            }
            return entries;
        }
        JSONArray rows = new JSONArray();
        if (value instanceof Collection) {
            for (Object inner : (Collection<?>) value) {
                rows.add(shown(inner));
            }
            return rows;
        }
        if (value.getClass().isArray()) {
            for (int i = 0; i < Array.getLength(value); i++) {
                rows.add(shown(Array.get(value, i)));
            }
            return rows;
        }
        return shownObject(value);
    }

    /** Fields that are null are left out. */
    private static JSONObject shownObject(Object value) throws Exception {
        JSONObject values = new JSONObject(true);
        for (Class<?> at = value.getClass(); at != Object.class; at = at.getSuperclass()) {
            for (Field field : at.getDeclaredFields()) {
                int modifiers = field.getModifiers();
                if (!Modifier.isStatic(modifiers) && !Modifier.isTransient(modifiers)) {
                    field.setAccessible(true);
                    Object inner = shown(field.get(value));
                    if (inner != null) {
                        values.put(field.getName(), inner);
                    }
                }
            }
        }
        return values;
    }
}
