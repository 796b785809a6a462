package rocketstore.interop;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * Does with RocketMQ's store what lines of standard input ask for, and answers each with one line
 * of JSON: nanoseconds of the timed part and how much was done. The arguments are settings, as
 * name=value. See contestants.py for the lines.
 */
public final class Race {
    private final RaceStore place;
    private MessageSet set;
    private int put;

    private Race(String[] settings) {
        place = new RaceStore(settings);
    }

    public static void main(String[] arguments) {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true);
        System.setOut(System.err);
        Race race = new Race(arguments);
        try (BufferedReader lines = new BufferedReader(
                new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            answers.println("{\"ready\": true}");
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                answers.println(race.answer(line.split(" ")));
            }
        } catch (Throwable error) {
            error.printStackTrace();
        }
        Runtime.getRuntime().halt(0); // RocketMQ's threads would keep the process
    }

    private String answer(String[] words) {
        try {
            return handle(words);
        } catch (Throwable error) {
            error.printStackTrace();
            String text = error.toString().replace('"', '\'').replace('\\', '/').replace('\n', ' ');
            return "{\"error\": \"" + text + "\"}";
        }
    }

    private String handle(String[] words) throws Exception {
        switch (words[0]) {
            case "set":
                set = new MessageSet(words[1]);
                return Clock.answer(0, 0, 0, set.count, "");
            case "open":
                put = 0;
                place.durable = words.length > 2 && words[2].equals("sync");
                return place.open(words[1]);
            case "reopen":
                return place.open(words[1]);
            case "rebuild":
                return place.rebuild(words[1]);
            case "close":
                place.close();
                return new Clock().answer();
            case "end":
                return place.end(set.topics, number(words[1]));
            case "dispatched":
                return dispatched();
            default:
                return words[0].startsWith("put") ? putting(words) : asking(words);
        }
    }

    private String dispatched() throws Exception {
        Clock clock = new Clock();
        clock.begin();
        place.awaitDispatched();
        clock.end(1);
        return clock.answer();
    }

    /** put CALL FIRST COUNT STEP, put_threads WIDTH FIRST COUNT STEP, and so on. */
    private String putting(String[] words) throws Exception {
        int first = number(words[2]);
        int count = number(words[3]);
        int step = number(words[4]);
        Putting putting = new Putting(place, set);
        put = Math.max(put, first + count);
        switch (words[0]) {
            case "put_threads":
                return putting.threads(number(words[1]), first, count, step);
            case "put_futures":
                return putting.futures(number(words[1]), first, count, step);
            case "put_beside":
                return new Beside(place, set).putAndRead(number(words[1]), first, count, step);
            default:
                return putting(putting, words, first, count, step);
        }
    }

    private static String putting(Putting putting, String[] words, int first, int count, int step)
            throws Exception {
        switch (words[1]) {
            case "single":
                return putting.single(first, count, step, words[0].equals("put_dispatched"));
            case "batch":
                return putting.batches(first, count, step);
            default:
                throw new IllegalArgumentException("no such put: " + words[1]);
        }
    }

    private String asking(String[] words) throws Exception {
        Asking asking = new Asking(place, set, put);
        String answer = asked(asking, words);
        if (asking.sum() < 0) {
            throw new IllegalStateException("bodies of negative length");
        }
        return answer;
    }

    private static String asked(Asking asking, String[] words) throws Exception {
        switch (words[0]) {
            case "get":
                return asking.get(number(words[1]), words[2].equals("body"), number(words[3]),
                    Long.parseLong(words[4]));
            case "query":
                return asking.query(number(words[1]));
            case "id":
                return asking.byId(number(words[1]));
            case "time":
                return asking.byTime(number(words[1]));
            default:
                throw new IllegalArgumentException("no such line: " + words[0]);
        }
    }

    private static int number(String word) {
        return Integer.parseInt(word);
    }
}
