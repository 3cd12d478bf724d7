package io.towpath;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

/** The native half is called as the JDK allows; which way that is the build says. */
class NativeTest {
  @Test
  void itIsCalledAsTheJdkAllows() {
    assertEquals(System.getProperty("towpath.how"), Native.how());
  }
}
