import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Runs the test class of the first argument, and prints a line per test. It ends with 1 if a test
 * failed or if there was none.
 */
public final class Tests extends RunListener {
    private Failure failure;

    @Override
    public void testStarted(Description test) {
        failure = null;
    }

    @Override
    public void testFailure(Failure failed) {
        failure = failed;
    }

    @Override
    public void testFinished(Description test) {
        String why = failure == null ? "" : ": " + failure.getMessage();
        System.out.println((failure == null ? "PASS " : "FAIL ") + test.getDisplayName() + why);
    }

    public static void main(String[] args) throws Exception {
        JUnitCore runner = new JUnitCore();
        runner.addListener(new Tests());
        var result = runner.run(Class.forName(args[0]));
        System.exit(result.wasSuccessful() && result.getRunCount() > 0 ? 0 : 1);
    }
}
