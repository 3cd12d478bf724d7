package io.towpath;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Locale;

/** The native library's file. */
final class Library {
  private Library() {}

  /** That of the artifact, or the one that the property {@code towpath.library} names. */
  static Path unpack() {
    String named = System.getProperty("towpath.library");
    if (named != null) {
      return Path.of(named).toAbsolutePath();
    }
    String system = System.getProperty("os.name").toLowerCase(Locale.ROOT);
    String platform = system + "-" + System.getProperty("os.arch").replace("x86_64", "amd64");
    try (InputStream library = Library.class.getResourceAsStream("native/" + platform + "/libtowpath_jvm.so")) {
      if (library == null) {
        throw new UnsatisfiedLinkError("towpath has no native library for " + platform);
      }
      Path file = Files.createTempFile("towpath", ".so");
      Files.copy(library, file, StandardCopyOption.REPLACE_EXISTING);
      return file;
    } catch (IOException error) {
      throw new UncheckedIOException("the native library of towpath cannot be unpacked", error);
    }
  }

  /** Deletes the file once it is loaded: it stays loaded without its name. */
  static void discard(Path file) {
    if (System.getProperty("towpath.library") != null) {
      return;
    }
    try {
      Files.delete(file);
    } catch (IOException error) {
      throw new UncheckedIOException("the native library of towpath cannot be deleted", error);
    }
  }
}
