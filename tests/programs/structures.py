from tests.programs.cases import Corpus

STRUCTURES = Corpus()
