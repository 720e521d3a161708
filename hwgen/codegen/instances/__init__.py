"""That a program executes exactly the instances which its tree intends, on every compilation."""
