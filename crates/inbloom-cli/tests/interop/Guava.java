// Guava's BloomFilter on files, for the tests: keys come on standard input, one a line.
//
//   java -cp guava.jar Guava.java ask FUNNEL FILE            prints 1 or 0 for each key
//   java -cp guava.jar Guava.java build FUNNEL FILE N P      writes a filter of the keys

import com.google.common.hash.BloomFilter;
import com.google.common.hash.Funnel;
import com.google.common.hash.Funnels;
import java.io.BufferedInputStream;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;
import java.util.function.Function;

public class Guava {
  public static void main(String[] arguments) throws Exception {
    switch (arguments[1]) {
      case "utf8" -> run(arguments, Funnels.stringFunnel(StandardCharsets.UTF_8), key -> key);
      case "utf16le" -> run(arguments, Funnels.unencodedCharsFunnel(), key -> key);
      case "i32le" -> run(arguments, Funnels.integerFunnel(), Integer::parseInt);
      case "i64le" -> run(arguments, Funnels.longFunnel(), Long::parseLong);
      default -> throw new IllegalArgumentException(arguments[1]);
    }
  }

  static <T> void run(String[] arguments, Funnel<? super T> funnel, Function<String, ? extends T> parse)
      throws Exception {
    var keys = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    if (arguments[0].equals("build")) {
      BloomFilter<T> filter =
          BloomFilter.create(
              funnel, Long.parseLong(arguments[3]), Double.parseDouble(arguments[4]));
      for (String key = keys.readLine(); key != null; key = keys.readLine()) {
        filter.put(parse.apply(key));
      }
      try (OutputStream file = new FileOutputStream(arguments[2])) {
        filter.writeTo(file);
      }
      return;
    }
    BloomFilter<T> filter;
    try (InputStream file = new BufferedInputStream(new FileInputStream(arguments[2]))) {
      filter = BloomFilter.readFrom(file, funnel);
    }
    var answers = new BufferedWriter(new OutputStreamWriter(System.out));
    for (String key = keys.readLine(); key != null; key = keys.readLine()) {
      answers.write(filter.mightContain(parse.apply(key)) ? "1\n" : "0\n");
    }
    answers.flush();
  }
}
