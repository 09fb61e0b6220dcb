"""A script is told of its calls, and not of a class's methods."""

from worker.script.given_program import in_words_of_a_script


def test_a_sentence_names_the_calls_of_a_script() -> None:
    assert in_words_of_a_script("train.py:3: train_dataset(1024) is empty") == (
        "train.py:3: the data of fit() is empty"
    )
    given = "the dataset_fn of train_dataset() calls Python, and evaluation_dataset(batch_size) does not"
    assert in_words_of_a_script(given) == "the data of fit() calls Python, and the data to evaluate does not"
