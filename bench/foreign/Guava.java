// Times queries of Guava's BloomFilter, for bench/foreign: a round for each line on standard input.
//
//   java -cp guava.jar Guava.java FILE KEYS      KEYS: length, big-endian, and bytes of each key
//
// Prints the nanoseconds of a key, and how many keys were found.

import com.google.common.hash.BloomFilter;
import com.google.common.hash.Funnels;
import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.FileInputStream;
import java.util.ArrayList;
import java.util.Scanner;

public class Guava {
  public static void main(String[] arguments) throws Exception {
    BloomFilter<byte[]> filter;
    try (var file = new BufferedInputStream(new FileInputStream(arguments[0]))) {
      filter = BloomFilter.readFrom(file, Funnels.byteArrayFunnel());
    }
    var list = new ArrayList<byte[]>();
    try (var file = new DataInputStream(new BufferedInputStream(new FileInputStream(arguments[1])))) {
      while (true) {
        byte[] key = new byte[file.readInt()];
        file.readFully(key);
        list.add(key);
      }
    } catch (EOFException end) {
      // All keys are read.
    }
    byte[][] keys = list.toArray(new byte[0][]);
    // Until the compiler has done its best.
    for (int round = 0; round < 5; round++) {
      count(filter, keys);
    }
    var lines = new Scanner(System.in);
    while (lines.hasNextLine()) {
      lines.nextLine();
      long start = System.nanoTime();
      int found = count(filter, keys);
      double nanos = (double) (System.nanoTime() - start) / keys.length;
      System.out.println(nanos + " " + found);
    }
  }

  static int count(BloomFilter<byte[]> filter, byte[][] keys) {
    int found = 0;
    for (byte[] key : keys) {
      if (filter.mightContain(key)) {
        found++;
      }
    }
    return found;
  }
}
