import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.TestExecutionResult.Status;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/** Runs the test class of the first argument, and prints a line per test and per failed class. */
public final class Tests implements TestExecutionListener {
    private int passed;
    private int failed;

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        if (result.getStatus() != Status.SUCCESSFUL) {
            failed++;
            System.out.println("FAIL " + test.getDisplayName() + ": " + result.getThrowable());
        } else if (test.isTest()) {
            passed++;
            System.out.println("PASS " + test.getDisplayName());
        }
    }

    /** Ends with 1 if a test failed or if none passed. */
    public static void main(String[] args) {
        var request = LauncherDiscoveryRequestBuilder.request().selectors(selectClass(args[0]));
        Tests tests = new Tests();
        LauncherFactory.create().execute(request.build(), tests);
        System.exit(tests.failed == 0 && tests.passed > 0 ? 0 : 1);
    }
}
